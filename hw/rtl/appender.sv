// Takes frames with their decisions in order, drops them or puts the trailer behind their last byte. A marker's frame
// is the answer to a control frame.
//
// Three registers: the beat with its trailer, both with the trailer rotated to where the frame ends, and the output. A
// trailer that does not fit into the last beat takes one more.
module appender (
    input  logic              clk,
    input  logic              rst,
    input  logic              decision_valid,
    input  layout::decision_t decision,
    output logic              decision_pop,
    input  logic              beat_valid,
    input  layout::beat_t     beat,
    output logic              beat_pop,
    input  logic              answer_valid,
    input  layout::beat_t     answer,
    input  logic [63:0]       answer_seal,
    output logic              answer_pop,
    output logic [511:0]      m_tdata,
    output logic [63:0]       m_tkeep,
    output logic              m_tvalid,
    input  logic              m_tready,
    output logic              m_tlast
);
    // Register 1.
    logic take;
    layout::beat_t source;
    logic passes;
    logic valid_1;
    layout::beat_t beat_1;
    logic [6:0] bytes_1;
    logic [511:0] trailer_1;
    logic ready_1;

    assign source = decision.marker ? answer : beat;
    assign take = ready_1 && decision_valid && (decision.marker ? answer_valid : beat_valid);
    assign answer_pop = take && decision.marker;
    assign beat_pop = take && !decision.marker;
    assign decision_pop = take && source.last;
    assign passes = decision.marker || !decision.drop;

    always_ff @(posedge clk) begin
        if (rst) valid_1 <= 1'b0;
        else if (ready_1) valid_1 <= take && passes;
        if (ready_1) begin
            beat_1 <= source;
            bytes_1 <= decision.marker ? layout::SEAL_BYTES : decision.bytes;
            trailer_1 <= decision.marker ? {448'd0, answer_seal} : decision.trailer;
        end
    end

    // Register 2: byte 0 of the trailer is at byte `count + 1` of the beat, and what does not fit is at byte 0.
    logic valid_2;
    layout::beat_t beat_2;
    logic [511:0] rotated;
    logic [6:0] sum_2;  // Bytes of beat and trailer, less one.
    logic ready_2;
    logic done_2;
    logic is_second;    // The beat is sent, and the rest of the trailer follows.
    logic needs_second;

    assign ready_1 = !valid_1 || ready_2;
    assign ready_2 = !valid_2 || done_2;

    logic [1023:0] twice;
    logic [6:0] start;
    assign start = {1'b0, beat_1.count} + 7'd1;
    assign twice = {trailer_1, trailer_1} << {start[5:0], 3'd0};
    always_ff @(posedge clk) begin
        if (rst) valid_2 <= 1'b0;
        else if (ready_2) valid_2 <= valid_1;
        if (ready_2) begin
            beat_2 <= beat_1;
            rotated <= twice[1023:512];
            sum_2 <= {1'b0, beat_1.count} + bytes_1;
        end
    end

    // The output.
    logic ready_3;
    logic [511:0] merged;
    logic [5:0] count_3;
    assign needs_second = beat_2.last && sum_2[6];
    assign ready_3 = !m_tvalid || m_tready;
    assign done_2 = ready_3 && (!needs_second || is_second);

    integer i;
    always_comb begin
        for (i = 0; i < 64; i = i + 1) begin
            merged[8*i+:8] = !is_second && (!beat_2.last || 6'(i) <= beat_2.count) ? beat_2.data[8*i+:8] :
                                                                                    rotated[8*i+:8];
        end
        count_3 = !beat_2.last || (needs_second && !is_second) ? 6'd63 : sum_2[5:0];
    end
    always_ff @(posedge clk) begin
        if (rst) is_second <= 1'b0;
        else if (valid_2 && ready_3) is_second <= needs_second && !is_second;
        if (rst) m_tvalid <= 1'b0;
        else if (ready_3) m_tvalid <= valid_2;
        if (ready_3) begin
            m_tdata <= merged;
            m_tkeep <= ~64'd0 >> (6'd63 - count_3);
            m_tlast <= beat_2.last && (!needs_second || is_second);
        end
    end

    logic unused;
    assign unused = &{1'b0, start[6], twice[511:0]};
endmodule
