// 16 bits of the counters of packets and bytes, in two banks. What they carry goes to the next part a cycle later, so
// no sum of a cycle is longer than 16 bits.
module counter_part (
    input  logic        clk,
    input  logic        rst,
    input  logic        clear,          // Of the bank that is not active.
    input  logic        active,
    input  logic        count,
    input  logic        count_bank,
    input  logic [5:0]  number,
    input  logic [15:0] packets,        // What is added.
    input  logic [15:0] bytes,
    output logic        carry,          // For the next part: count, and what is added.
    output logic        carry_bank,
    output logic [5:0]  carry_number,
    output logic        carry_packets,
    output logic        carry_bytes,
    input  logic [5:0]  read_number,
    output logic [63:0] read            // Bytes and packets of each bank, bank 1 above.
);
    logic [1:0] packets_over;
    logic [1:0] bytes_over;
    genvar b;
    generate
        for (b = 0; b < 2; b = b + 1) begin : bank
            // A counter that is not in `begun` has the value 0, whatever its memory has.
            logic [31:0] values[0:63];
            logic [63:0] begun;
            logic [31:0] value;
            logic [16:0] sum_packets;
            logic [16:0] sum_bytes;
            logic add;
            assign add = count && count_bank == 1'(b);
            assign value = begun[number] ? values[number] : 32'd0;
            assign sum_packets = {1'b0, value[15:0]} + {1'b0, packets};
            assign sum_bytes = {1'b0, value[31:16]} + {1'b0, bytes};
            assign packets_over[b] = sum_packets[16];
            assign bytes_over[b] = sum_bytes[16];
            always_ff @(posedge clk) begin
                if (add) values[number] <= {sum_bytes[15:0], sum_packets[15:0]};
            end
            always_ff @(posedge clk) begin
                if (rst || (clear && active != 1'(b))) begun <= 64'd0;
                else if (add) begun[number] <= 1'b1;
            end
            assign read[32*b+:32] = begun[read_number] ? values[read_number] : 32'd0;
        end
    endgenerate

    always_ff @(posedge clk) begin
        carry <= count && !rst;
        carry_bank <= count_bank;
        carry_number <= number;
        carry_packets <= packets_over[count_bank];
        carry_bytes <= bytes_over[count_bank];
    end
endmodule
