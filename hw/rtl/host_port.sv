// Divides what comes from the software: control frames stay on the card, all other frames leave to the network.
module host_port (
    input  logic         clk,
    input  logic         rst,
    input  logic [511:0] s_tdata,
    input  logic [63:0]  s_tkeep,
    input  logic         s_tvalid,
    output logic         s_tready,
    input  logic         s_tlast,
    output logic         control_valid,
    input  logic         control_ready,
    output logic [511:0] m_tdata,
    output logic [63:0]  m_tkeep,
    output logic         m_tvalid,
    input  logic         m_tready,
    output logic         m_tlast
);
    logic is_first;
    logic was_control;
    logic is_control;
    logic wire_ready;

    // A frame without a whole header is none.
    assign is_control = is_first ? {s_tdata[8*12+:8], s_tdata[8*13+:8]} == layout::CONTROL_ETHER_TYPE &&
                                   s_tkeep[layout::CONTROL_HEADER_BYTES-1] : was_control;
    assign wire_ready = !m_tvalid || m_tready;
    assign s_tready = is_control ? control_ready : wire_ready;
    assign control_valid = s_tvalid && is_control;

    always_ff @(posedge clk) begin
        if (rst) is_first <= 1'b1;
        else if (s_tvalid && s_tready) is_first <= s_tlast;
        was_control <= is_control;
        if (rst) m_tvalid <= 1'b0;
        else if (wire_ready) m_tvalid <= s_tvalid && !is_control;
        if (wire_ready) begin
            m_tdata <= s_tdata;
            m_tkeep <= s_tkeep;
            m_tlast <= s_tlast;
        end
    end
endmodule
