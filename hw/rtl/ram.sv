// A memory of words of 32 bits in two banks: block RAM with two ports. The packets' port only reads. The software's
// port reads and writes the other bank. Both have an output register, so data follow two cycles behind their address.
module ram #(
    parameter integer ADDRESS_BITS = 10
) (
    input  logic                    clk,
    input  logic [ADDRESS_BITS:0]   packet_address,  // The bank is the highest bit.
    output logic [31:0]             packet_data,
    input  logic                    write,
    input  logic [ADDRESS_BITS:0]   bus_address,
    input  logic [31:0]             bus_data,
    output logic [31:0]             bus_read
);
    logic [31:0] words[0:(2<<ADDRESS_BITS)-1];
    logic [31:0] packet_word;
    logic [31:0] bus_word;

    always_ff @(posedge clk) begin
        // Never the same address, because the banks differ. Synthesis that knows it needs no copy for each port.
        packet_word <= write && packet_address == bus_address ? 32'bx : words[packet_address];
        packet_data <= packet_word;
    end

    always_ff @(posedge clk) begin
        if (write) words[bus_address] <= bus_data;
        bus_word <= words[bus_address];
        bus_read <= bus_word;
    end
endmodule
