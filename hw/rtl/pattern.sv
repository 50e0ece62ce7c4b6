// One pattern: takes its field, compares it with all its ranges at once, and answers three cycles later.
module pattern #(
    parameter integer INDEX = 0,
    parameter integer RANGES = 8
) (
    input  logic            clk,
    input  layout::bus_t    bus,
    input  logic            take,           // A packet with answers is in `packet`.
    input  logic            bank,
    input  logic [11:0]     headers,
    input  logic [16*32-1:0] fields,        // Field n at 32n.
    input  logic            compare,        // One cycle later: the packet's values are taken.
    input  logic            compare_bank,
    input  logic            answer,         // Another cycle later: they are compared.
    input  logic            answer_bank,
    output logic            match
);
    localparam [5:0] NUMBER = 6'(INDEX);

    // Words of this pattern. Bank 1 is the upper half of each.
    logic [63:0] head;
    logic [63:0] mask;
    logic selected;
    logic [4:0] word;

    assign selected = bus.write && bus.memory == layout::MEMORY_PATTERNS && bus.address[19:11] == 9'd0 &&
                      bus.address[10:5] == NUMBER;
    assign word = bus.address[4:0];

    always_ff @(posedge clk) begin
        if (selected && word == 5'd0 && !bus.bank) head[31:0] <= bus.data;
        if (selected && word == 5'd0 && bus.bank) head[63:32] <= bus.data;
        if (selected && word == 5'd1 && !bus.bank) mask[31:0] <= bus.data;
        if (selected && word == 5'd1 && bus.bank) mask[63:32] <= bus.data;
    end

    // First cycle: the field and the header.
    logic [31:0] take_head;
    logic [31:0] value;
    logic has_header;
    logic [15:0] all_headers;
    assign take_head = bank ? head[63:32] : head[31:0];
    assign all_headers = {4'd0, headers};
    always_ff @(posedge clk) begin
        if (take) begin
            value <= fields[{take_head[3:0], 5'd0}+:32] & (bank ? mask[63:32] : mask[31:0]);
            has_header <= all_headers[take_head[7:4]];
        end
    end

    // Second cycle: the ranges.
    logic [31:0] compare_head;
    logic [RANGES-1:0] in_range;
    logic had_header;
    assign compare_head = compare_bank ? head[63:32] : head[31:0];
    genvar r;
    generate
        for (r = 0; r < RANGES; r = r + 1) begin : range
            logic [63:0] first;
            logic [63:0] last;
            always_ff @(posedge clk) begin
                if (selected && word == 5'(2 + 2 * r) && !bus.bank) first[31:0] <= bus.data;
                if (selected && word == 5'(2 + 2 * r) && bus.bank) first[63:32] <= bus.data;
                if (selected && word == 5'(3 + 2 * r) && !bus.bank) last[31:0] <= bus.data;
                if (selected && word == 5'(3 + 2 * r) && bus.bank) last[63:32] <= bus.data;
            end
            always_ff @(posedge clk) begin
                if (compare) begin
                    in_range[r] <= compare_head[15:12] > 4'(r) &&
                                   value >= (compare_bank ? first[63:32] : first[31:0]) &&
                                   value <= (compare_bank ? last[63:32] : last[31:0]);
                end
            end
        end
    endgenerate
    always_ff @(posedge clk) if (compare) had_header <= has_header;

    // Third cycle: the answer.
    logic [31:0] answer_head;
    logic compares;
    logic negated;
    assign answer_head = answer_bank ? head[63:32] : head[31:0];
    assign compares = answer_head[9];
    assign negated = answer_head[8];
    always_ff @(posedge clk) begin
        if (answer) match <= had_header && (!compares || (|in_range != negated));
    end

    logic unused;
    assign unused = &{1'b0, take_head[31:8], compare_head[31:16], compare_head[11:0], answer_head[31:10],
                      answer_head[7:0]};
endmodule
