// The words of CONFIG, by bank.
module registers (
    input  logic         clk,
    input  layout::bus_t bus,
    output logic [127:0] seal_answers,   // Bank 1 is the upper half of each.
    output logic [127:0] seal_alone,
    output logic [63:0]  shape,
    output logic [1:0]   options_alone,
    output logic [1:0]   plain
);
    logic selected;
    assign selected = bus.write && bus.memory == layout::MEMORY_CONFIG && bus.address[19:3] == 17'd0;

    genvar b;
    generate
        for (b = 0; b < 2; b = b + 1) begin : bank
            always_ff @(posedge clk) begin
                if (selected && bus.bank == 1'(b)) begin
                    case (bus.address[2:0])
                        layout::REGISTER_SEAL_ANSWERS: seal_answers[64*b+:32] <= bus.data;
                        layout::REGISTER_SEAL_ANSWERS + 3'd1: seal_answers[64*b+32+:32] <= bus.data;
                        layout::REGISTER_SEAL_ALONE: seal_alone[64*b+:32] <= bus.data;
                        layout::REGISTER_SEAL_ALONE + 3'd1: seal_alone[64*b+32+:32] <= bus.data;
                        layout::REGISTER_SHAPE: shape[32*b+:32] <= bus.data;
                        layout::REGISTER_MODE: begin
                            options_alone[b] <= bus.data[layout::MODE_OPTIONS_ALONE];
                            plain[b] <= bus.data[layout::MODE_PLAIN];
                        end
                        default: ;
                    endcase
                end
            end
        end
    endgenerate
endmodule
