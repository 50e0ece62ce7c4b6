// One rule: whether all patterns in its mask match. `hit` follows one cycle later; `act` and `argument` are those of a
// bank.
module rule #(
    parameter integer INDEX = 0,
    parameter integer PATTERNS = 64
) (
    input  logic                clk,
    input  layout::bus_t        bus,
    input  logic                take,
    input  logic                bank,
    input  logic [PATTERNS-1:0] matching,
    output logic                hit,
    input  logic                act_bank,
    output logic [1:0]          act,
    output logic [7:0]          argument
);
    localparam [7:0] NUMBER = 8'(INDEX);

    // Words of this rule. Bank 1 is the upper half of each.
    logic [63:0] head;
    logic [127:0] mask;
    logic selected;
    logic [1:0] word;

    assign selected = bus.write && bus.memory == layout::MEMORY_RULES && bus.address[19:10] == 10'd0 &&
                      bus.address[9:2] == NUMBER;
    assign word = bus.address[1:0];

    always_ff @(posedge clk) begin
        if (selected && !bus.bank) begin
            if (word == 2'd0) head[31:0] <= bus.data;
            if (word == 2'd1) mask[31:0] <= bus.data;
            if (word == 2'd2) mask[63:32] <= bus.data;
        end
        if (selected && bus.bank) begin
            if (word == 2'd0) head[63:32] <= bus.data;
            if (word == 2'd1) mask[95:64] <= bus.data;
            if (word == 2'd2) mask[127:96] <= bus.data;
        end
    end

    logic [63:0] wanted;
    assign wanted = bank ? mask[127:64] : mask[63:0];
    always_ff @(posedge clk) if (take) hit <= (wanted[PATTERNS-1:0] & ~matching) == '0;

    logic [31:0] act_head;
    assign act_head = act_bank ? head[63:32] : head[31:0];
    assign act = act_head[1:0];
    assign argument = act_head[15:8];

    logic unused;
    assign unused = &{1'b0, wanted, act_head[31:16], act_head[7:2]};
endmodule
