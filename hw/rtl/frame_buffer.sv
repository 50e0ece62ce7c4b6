// The FIFO of received beats: block RAM with an output register. Frames wait here for their decision.
module frame_buffer #(
    parameter integer ADDRESS_BITS = 9
) (
    input  logic          clk,
    input  logic          rst,
    input  logic          push,
    input  layout::beat_t in,
    output logic          room,   // One more beat may be pushed in the next cycle.
    output logic          valid,
    output layout::beat_t out,
    input  logic          pop
);
    localparam integer WIDTH = layout::BEAT_BITS;

    logic [WIDTH-1:0] beats[0:(1<<ADDRESS_BITS)-1];
    logic [ADDRESS_BITS:0] head;
    logic [ADDRESS_BITS:0] tail;
    logic [ADDRESS_BITS:0] used;
    logic [WIDTH-1:0] next;
    logic next_valid;
    logic [WIDTH-1:0] current;
    logic current_valid;
    logic take_next;
    logic read;

    // Two beats may be under way to the buffer when `room` falls.
    assign used = tail - head;
    assign room = used < (ADDRESS_BITS + 1)'((1 << ADDRESS_BITS) - 2);
    assign take_next = next_valid && (!current_valid || pop);
    assign read = head != tail && (!next_valid || take_next);
    assign valid = current_valid;
    assign out = current;

    always_ff @(posedge clk) begin
        if (push) beats[tail[ADDRESS_BITS-1:0]] <= in;
    end

    always_ff @(posedge clk) begin
        if (read) next <= beats[head[ADDRESS_BITS-1:0]];
        if (take_next) current <= next;
    end

    always_ff @(posedge clk) begin
        if (rst) begin
            head <= 0;
            tail <= 0;
            next_valid <= 1'b0;
            current_valid <= 1'b0;
        end else begin
            if (push) tail <= tail + 1'b1;
            if (read) head <= head + 1'b1;
            next_valid <= read || (next_valid && !take_next);
            current_valid <= take_next || (current_valid && !pop);
        end
    end
endmodule
