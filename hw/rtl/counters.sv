// Counters of dropped packets and their bytes, in two banks. A commit sets those of the bank that becomes active to 0.
module counters #(
    parameter integer COUNTERS = 64
) (
    input  logic         clk,
    input  logic         rst,
    input  logic         clear,        // Of the bank that is not active.
    input  logic         active,       // The active bank.
    input  logic         count,
    input  logic         count_bank,
    input  logic [5:0]   number,
    input  logic [13:0]  bytes,
    input  layout::bus_t bus,
    output logic [31:0]  bus_read
);
    // A counter that is not in `begun` has the value 0, whatever its memory has.
    logic [255:0] read;
    genvar b;
    generate
        for (b = 0; b < 2; b = b + 1) begin : bank
            logic [127:0] values[0:63];
            logic [63:0] begun;
            logic [127:0] value;
            logic add;
            assign add = count && count_bank == 1'(b);
            assign value = begun[number] ? values[number] : 128'd0;
            always_ff @(posedge clk) begin
                if (add) values[number] <= {value[127:64] + {50'd0, bytes}, value[63:0] + 64'd1};
            end
            always_ff @(posedge clk) begin
                if (rst || (clear && active != 1'(b))) begun <= 64'd0;
                else if (add) begun[number] <= 1'b1;
            end
            assign read[128*b+:128] = begun[bus.address[7:2]] ? values[bus.address[7:2]] : 128'd0;
        end
    endgenerate

    logic is_active;
    logic is_before;
    logic [127:0] chosen;
    assign is_active = bus.memory == layout::MEMORY_COUNTERS;
    assign is_before = bus.memory == layout::MEMORY_COUNTERS_BEFORE;
    assign chosen = active == is_active ? read[255:128] : read[127:0];
    always_ff @(posedge clk) begin
        bus_read <= 32'd0;
        if ((is_active || is_before) && {12'd0, bus.address} < 4 * COUNTERS) begin
            bus_read <= chosen[{bus.address[1:0], 5'd0}+:32];
        end
    end

    logic unused;
    assign unused = &{1'b0, bus.write, bus.bank, bus.data};
endmodule
