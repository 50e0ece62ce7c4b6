// The FIFO of decisions, in distributed RAM. The pipeline before it never stops: the module that puts frames into it
// makes sure that there are never more than 2^ADDRESS_BITS under way.
module decision_queue #(
    parameter integer ADDRESS_BITS = 5
) (
    input  logic              clk,
    input  logic              rst,
    input  logic              push,
    input  layout::decision_t in,
    output logic              valid,
    output layout::decision_t out,
    input  logic              pop
);
    localparam integer WIDTH = layout::DECISION_BITS;

    logic [WIDTH-1:0] decisions[0:(1<<ADDRESS_BITS)-1];
    logic [ADDRESS_BITS:0] head;
    logic [ADDRESS_BITS:0] tail;

    assign valid = head != tail;
    assign out = decisions[head[ADDRESS_BITS-1:0]];

    always_ff @(posedge clk) begin
        if (push) decisions[tail[ADDRESS_BITS-1:0]] <= in;
    end

    always_ff @(posedge clk) begin
        if (rst) begin
            head <= 0;
            tail <= 0;
        end else begin
            if (push) tail <= tail + 1'b1;
            if (pop) head <= head + 1'b1;
        end
    end
endmodule
