// Delays a value by STAGES cycles.
module delay #(
    parameter integer WIDTH = 1,
    parameter integer STAGES = 1
) (
    input  logic             clk,
    input  logic [WIDTH-1:0] in,
    output logic [WIDTH-1:0] out
);
    logic [WIDTH*STAGES-1:0] line;

    generate
        if (STAGES == 1) begin : one
            always_ff @(posedge clk) line <= in;
        end else begin : many
            always_ff @(posedge clk) line <= {line[WIDTH*(STAGES-1)-1:0], in};
        end
    endgenerate

    assign out = line[WIDTH*STAGES-1-:WIDTH];
endmodule
