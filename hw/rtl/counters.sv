// Counters of dropped packets and their bytes, in two banks. A commit sets those of the bank that becomes active to 0.
// A count goes through four parts of 16 bits, a cycle each. What software reads of a bank that is not active is whole:
// the answer to a commit comes many cycles behind the last count.
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
    localparam integer PARTS = 4;

    // What goes into each part, and out of the last one.
    logic [PARTS:0] counts;
    logic [PARTS:0] banks;
    logic [6*PARTS+5:0] numbers;
    logic [16*PARTS+15:0] packets_in;
    logic [16*PARTS+15:0] bytes_in;
    logic [64*PARTS-1:0] parts_read;
    assign counts[0] = count;
    assign banks[0] = count_bank;
    assign numbers[5:0] = number;
    assign packets_in[15:0] = 16'd1;
    assign bytes_in[15:0] = {2'd0, bytes};
    genvar n;
    generate
        for (n = 0; n < PARTS; n = n + 1) begin : parts
            counter_part part (
                .clk(clk), .rst(rst), .clear(clear), .active(active), .count(counts[n]), .count_bank(banks[n]),
                .number(numbers[6*n+:6]), .packets(packets_in[16*n+:16]), .bytes(bytes_in[16*n+:16]),
                .carry(counts[n+1]), .carry_bank(banks[n+1]), .carry_number(numbers[6*n+6+:6]),
                .carry_packets(packets_in[16*n+16]), .carry_bytes(bytes_in[16*n+16]),
                .read_number(bus.address[7:2]), .read(parts_read[64*n+:64])
            );
            assign packets_in[16*n+17+:15] = 15'd0;
            assign bytes_in[16*n+17+:15] = 15'd0;
        end
    endgenerate

    // The words of a counter: packets low and high, bytes low and high.
    logic is_active;
    logic is_before;
    logic is_upper;
    logic [127:0] chosen;
    integer i;
    assign is_active = bus.memory == layout::MEMORY_COUNTERS;
    assign is_before = bus.memory == layout::MEMORY_COUNTERS_BEFORE;
    assign is_upper = active == is_active;
    always_comb begin
        for (i = 0; i < PARTS; i = i + 1) begin
            chosen[16*i+:16] = is_upper ? parts_read[64*i+32+:16] : parts_read[64*i+:16];
            chosen[64+16*i+:16] = is_upper ? parts_read[64*i+48+:16] : parts_read[64*i+16+:16];
        end
    end
    always_ff @(posedge clk) begin
        bus_read <= 32'd0;
        if ((is_active || is_before) && $signed({12'd0, bus.address}) < 4 * COUNTERS) begin
            bus_read <= chosen[{bus.address[1:0], 5'd0}+:32];
        end
    end

    logic unused;
    assign unused = &{1'b0, counts[PARTS], banks[PARTS], numbers[6*PARTS+:6], packets_in[16*PARTS+:16],
                      bytes_in[16*PARTS+:16], bus.write, bus.bank, bus.data};
endmodule
