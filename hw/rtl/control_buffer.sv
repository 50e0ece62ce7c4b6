// One control frame, which becomes its answer: 17 beats of 16 words. Beats come and go whole, words are read and
// written one at a time.
module control_buffer (
    input  logic         clk,
    input  logic         write_beat,
    input  logic         write_word,
    input  logic [4:0]   row,
    input  logic [3:0]   lane,
    input  logic [511:0] beat_in,
    input  logic [31:0]  word_in,
    output logic [511:0] beat_out,
    output logic [31:0]  word_out
);
    genvar l;
    generate
        for (l = 0; l < 16; l = l + 1) begin : lanes
            logic [31:0] words[0:31];
            always_ff @(posedge clk) begin
                if (write_beat || (write_word && lane == 4'(l))) begin
                    words[row] <= write_beat ? beat_in[32*l+:32] : word_in;
                end
            end
            assign beat_out[32*l+:32] = words[row];
        end
    endgenerate
    assign word_out = beat_out[{lane, 5'd0}+:32];
endmodule
