// A copy of the memories that are registers, in block RAM. Registers feed comparators in every cycle and have no port
// to read them; the software reads this copy.
//
// Address in the copy:  0 PATTERNS (2,048)   2,048 RULES (1,024)   3,072 SELECT (64)   3,136 LOOKUPS   3,144 CONFIG
module shadow #(
    parameter integer PATTERNS = 64,
    parameter integer RANGES = 8,
    parameter integer RULES = 128,
    parameter integer LOOKUPS = 6,
    parameter integer BODY = 56
) (
    input  logic         clk,
    input  layout::bus_t bus,
    output logic [31:0]  bus_read
);
    logic in_memory;
    logic [11:0] address;
    logic [31:0] data;
    logic [31:0] place;
    assign place = {12'd0, bus.address};

    always_comb begin
        case (bus.memory)
            layout::MEMORY_PATTERNS: begin
                in_memory = place < 32 * PATTERNS && {27'd0, place[4:0]} < 2 + 2 * RANGES;
                address = {1'b0, bus.address[10:0]};
            end
            layout::MEMORY_RULES: begin
                in_memory = place < 4 * RULES && place[1:0] != 2'd3;
                address = {2'b10, bus.address[9:0]};
            end
            layout::MEMORY_SELECT: begin
                in_memory = place < BODY;
                address = {6'b110000, bus.address[5:0]};
            end
            layout::MEMORY_LOOKUPS: begin
                in_memory = place < LOOKUPS;
                address = {9'b110001000, bus.address[2:0]};
            end
            layout::MEMORY_CONFIG: begin
                in_memory = place < layout::REGISTER_COUNT;
                address = {9'b110001001, bus.address[2:0]};
            end
            default: begin
                in_memory = 1'b0;
                address = 12'd0;
            end
        endcase
    end

    logic [31:0] packet_unused;
    ram #(.ADDRESS_BITS(12)) copy (
        .clk(clk), .packet_address(13'd0), .packet_data(packet_unused), .write(bus.write && in_memory),
        .bus_address({bus.bank, address}), .bus_data(bus.data), .bus_read(data)
    );
    assign bus_read = in_memory ? data : 32'd0;
endmodule
