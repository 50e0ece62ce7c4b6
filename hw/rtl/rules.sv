// The rule vector: from matching patterns to what follows. The results belong to the patterns of three cycles before:
// one cycle finds the rules that match, one the first of each kind, one their arguments.
module rules #(
    parameter integer PATTERNS = 64,
    parameter integer RULES = 128,
    parameter integer COUNTERS = 64
) (
    input  logic                clk,
    input  layout::bus_t        bus,
    input  logic                in_valid,
    input  logic                bank,
    input  logic                answers,   // Only packets with answers are compared.
    input  logic [PATTERNS-1:0] matching,
    output logic [7:0]          first,
    output logic [63:0]         counted,
    output logic                drop,
    output logic [5:0]          counter
);
    logic [RULES-1:0] hit;
    logic [2*RULES-1:0] act;
    logic [8*RULES-1:0] argument;
    logic hit_valid;
    logic hit_bank;
    logic first_valid;
    logic first_bank;

    always_ff @(posedge clk) begin
        hit_valid <= in_valid && answers;
        hit_bank <= bank;
        first_valid <= hit_valid;
        first_bank <= hit_bank;
    end

    genvar n;
    generate
        for (n = 0; n < RULES; n = n + 1) begin : each
            rule #(.INDEX(n), .PATTERNS(PATTERNS)) one (
                .clk(clk), .bus(bus), .take(in_valid && answers), .bank(bank), .matching(matching), .hit(hit[n]),
                .act_bank(hit_bank), .act(act[2*n+:2]), .argument(argument[8*n+:8])
            );
        end
    endgenerate

    // The rules that match, by act. A drop that cannot be counted is not used.
    logic [RULES-1:0] ends;
    logic [RULES-1:0] drops;
    logic [63:0] counts;
    integer i;
    always_comb begin
        ends = '0;
        drops = '0;
        counts = 64'd0;
        for (i = 0; i < RULES; i = i + 1) begin
            ends[i] = hit[i] && act[2*i+:2] == layout::ACT_END;
            drops[i] = hit[i] && act[2*i+:2] == layout::ACT_DROP && $signed({24'd0, argument[8*i+:8]}) < COUNTERS;
            if (hit[i] && act[2*i+:2] == layout::ACT_COUNT && argument[8*i+6+:2] == 2'd0) begin
                counts = counts | 64'd1 << argument[8*i+:6];
            end
        end
    end

    // The lowest bit of each is the first rule.
    logic [RULES-1:0] first_end;
    logic [RULES-1:0] first_drop;
    logic [8*RULES-1:0] first_argument;
    logic [63:0] first_counts;
    always_ff @(posedge clk) begin
        if (hit_valid) begin
            first_end <= ends & (~ends + 1'b1);
            first_drop <= drops & (~drops + 1'b1);
            first_argument <= argument;
            first_counts <= counts;
        end
    end

    logic [7:0] end_argument;
    logic [5:0] drop_argument;
    integer j;
    always_comb begin
        end_argument = 8'd0;
        drop_argument = 6'd0;
        for (j = 0; j < RULES; j = j + 1) begin
            if (first_end[j]) end_argument = end_argument | first_argument[8*j+:8];
            if (first_drop[j]) drop_argument = drop_argument | first_argument[8*j+:6];
        end
    end
    always_ff @(posedge clk) begin
        drop <= first_valid && first_drop != '0;
        if (first_valid) begin
            first <= end_argument;
            counted <= first_counts;
            counter <= drop_argument;
        end
    end

    logic unused;
    assign unused = first_bank;
endmodule
