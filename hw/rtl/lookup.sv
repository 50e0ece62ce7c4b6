// One D16+X4 lookup: the direct section finds a block, the extension section an entry. 48 bits follow five cycles
// behind the addresses: the entry, the 12 bits of the key that are left, and whether there is a key.
module lookup #(
    parameter integer INDEX = 0,
    parameter integer BLOCK_BITS = 14
) (
    input  logic         clk,
    input  layout::bus_t bus,
    input  logic         bank,
    input  logic         is_ip4,
    input  logic [31:0]  saddr,
    input  logic [31:0]  daddr,
    output logic [47:0]  answer,
    output logic [31:0]  bus_read
);
    localparam [4:0] NUMBER = 5'(INDEX);

    // How this lookup is used, by bank.
    logic [1:0] used;
    logic [1:0] takes_daddr;
    logic selected;
    assign selected = bus.write && bus.memory == layout::MEMORY_LOOKUPS && bus.address == {15'd0, NUMBER};
    always_ff @(posedge clk) begin
        if (selected) begin
            used[bus.bank] <= bus.data[0];
            takes_daddr[bus.bank] <= bus.data[1];
        end
    end

    // Cycle 1: the key. Cycles 2 and 3: the block.
    logic key_valid;
    logic key_bank;
    logic [31:0] key;
    logic block_valid;
    logic block_bank;
    logic [16:0] block_key;
    logic [31:0] block_pair;
    always_ff @(posedge clk) begin
        key_valid <= is_ip4 && used[bank];
        key_bank <= bank;
        key <= takes_daddr[bank] ? daddr : saddr;
    end
    delay #(.WIDTH(19), .STAGES(2)) while_direct (
        .clk(clk), .in({key_valid, key_bank, key[16:0]}), .out({block_valid, block_bank, block_key})
    );

    logic is_direct;
    logic [31:0] direct_read;
    assign is_direct = bus.memory == layout::MEMORY_DIRECT + NUMBER && bus.address[19:15] == 5'd0;
    ram #(.ADDRESS_BITS(15)) direct (
        .clk(clk), .packet_address({key_bank, key[31:17]}), .packet_data(block_pair), .write(bus.write && is_direct),
        .bus_address({bus.bank, bus.address[14:0]}), .bus_data(bus.data), .bus_read(direct_read)
    );

    // Cycles 4 and 5: the entry. A block that the section does not have has the entry 0.
    logic [15:0] block;
    logic in_section;
    logic entry_valid;
    logic entry_in_section;
    logic [11:0] entry_low;
    logic [31:0] entry;
    assign block = block_key[16] ? block_pair[31:16] : block_pair[15:0];
    assign in_section = {16'd0, block} < 32'd1 << BLOCK_BITS;
    delay #(.WIDTH(14), .STAGES(2)) while_extension (
        .clk(clk), .in({block_valid, in_section, block_key[11:0]}), .out({entry_valid, entry_in_section, entry_low})
    );

    logic is_extension;
    logic [31:0] extension_read;
    assign is_extension = bus.memory == layout::MEMORY_EXTENSION + NUMBER &&
                          {12'd0, bus.address} < 32'd16 << BLOCK_BITS;
    ram #(.ADDRESS_BITS(BLOCK_BITS + 4)) extension (
        .clk(clk), .packet_address({block_bank, block[BLOCK_BITS-1:0], block_key[15:12]}), .packet_data(entry),
        .write(bus.write && is_extension), .bus_address({bus.bank, bus.address[BLOCK_BITS+3:0]}), .bus_data(bus.data),
        .bus_read(extension_read)
    );

    assign answer = entry_valid ? {4'b1000, entry_low, entry_in_section ? entry : 32'd0} : 48'd0;
    assign bus_read = is_direct ? direct_read : is_extension ? extension_read : 32'd0;
endmodule
