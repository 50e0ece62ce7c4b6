// Carries out control frames, one after the other. The answer to each takes its place behind the frames that are on
// their way: a marker goes through the pipeline, and when it arrives, the appender fetches the answer here. The bank
// changes with the marker of a commit, so a frame has the bank before or behind it. The next control frame is not begun
// before the answer has left, so no frame under way uses the bank that is written.
module control (
    input  logic          clk,
    input  logic          rst,
    input  logic [511:0]  s_tdata,
    input  logic [63:0]   s_tkeep,
    input  logic          s_tvalid,
    output logic          s_tready,
    input  logic          s_tlast,
    output layout::bus_t  bus,
    input  logic [31:0]   bus_read,
    output logic          bank,          // The active bank.
    output logic          configured,    // There was a commit.
    output logic          commit,        // In this cycle the other bank becomes active.
    output logic          marker,        // A marker waits for a cycle without a frame,
    input  logic          marker_taken,  // and this is one.
    output logic          answer_valid,
    output layout::beat_t answer,
    input  logic          answer_pop,
    output logic          busy
);
    localparam [2:0] RECEIVE = 3'd0;
    localparam [2:0] CHECK = 3'd1;
    localparam [2:0] WRITE = 3'd2;
    localparam [2:0] READ = 3'd3;
    localparam [2:0] MARK = 3'd4;
    localparam [2:0] ANSWER = 3'd5;
    localparam [4:0] ROWS = 5'd17;
    localparam [2:0] READ_LAST = 3'(layout::READ_CYCLES - 1);

    logic [2:0] state;
    logic [4:0] row;           // The next beat that comes or goes.
    logic [10:0] length;       // Bytes received, at most those of 17 beats.
    logic [5:0] count;         // Bytes of the last beat less one.
    logic [7:0] op;
    logic [7:0] memory;
    logic [31:0] first;
    logic [15:0] wanted;
    logic is_whole;            // All words are there that the header promises.
    logic [8:0] words;         // That are written or read.
    logic [8:0] index;
    logic [2:0] wait_cycles;

    logic [4:0] buffer_row;
    logic [3:0] buffer_lane;
    logic [511:0] beat_out;
    logic [31:0] word_out;
    logic [8:0] position;      // Of word `index` in the frame.
    logic read_done;
    logic accept;

    // The highest byte of the beat, from the one bit in `top`: a priority encoder would be the longest path of the card.
    logic [63:0] top;
    assign top = s_tkeep & ~{1'b0, s_tkeep[63:1]};
    integer i;
    always_comb begin
        count = 6'd0;
        for (i = 0; i < 64; i = i + 1) if (top[i]) count = count | 6'(i);
    end

    assign accept = s_tvalid && s_tready;
    assign s_tready = state == RECEIVE;
    assign busy = state != RECEIVE || row != 5'd0;
    assign position = index + 9'(layout::CONTROL_HEADER_BYTES / 4);
    assign read_done = state == READ && wait_cycles == READ_LAST;
    assign buffer_row = state == WRITE || state == READ ? position[8:4] : row;
    assign buffer_lane = position[3:0];

    control_buffer buffer (
        .clk(clk), .write_beat(accept && row < ROWS), .write_word(read_done), .row(buffer_row), .lane(buffer_lane),
        .beat_in(s_tdata), .word_in(bus_read), .beat_out(beat_out), .word_out(word_out)
    );

    // The header, and the state.
    assign is_whole = wanted <= 16'(layout::CONTROL_WORDS_MAX) &&
                      (op != layout::CONTROL_WRITE ||
                       length >= 11'(layout::CONTROL_HEADER_BYTES) + {wanted[8:0], 2'd0});
    always_ff @(posedge clk) begin
        if (accept && row == 5'd0) begin
            op <= s_tdata[8*14+:8];
            memory <= s_tdata[8*15+:8];
            first <= s_tdata[8*16+:32];
            wanted <= s_tdata[8*20+:16];
        end
        if (accept && row < ROWS) length <= {row, 6'd0} + {5'd0, count} + 11'd1;
    end

    logic refused;
    logic [8:0] answer_words;
    logic [10:0] answer_last;  // Bytes of the answer less one.
    assign answer_words = op == layout::CONTROL_READ && !refused ? words : 9'd0;
    assign answer_last = answer_words < 9'd9 ? 11'd59 : {answer_words, 2'd0} + 11'(layout::CONTROL_HEADER_BYTES - 1);

    always_ff @(posedge clk) begin
        wait_cycles <= state == READ && !read_done ? wait_cycles + 1'b1 : 3'd0;
        if (rst) begin
            state <= RECEIVE;
            row <= 5'd0;
        end else case (state)
            RECEIVE: if (accept) begin
                row <= s_tlast ? 5'd0 : row < ROWS ? row + 1'b1 : row;
                if (s_tlast) state <= CHECK;
            end
            CHECK: begin
                refused <= !is_whole || op < layout::CONTROL_WRITE || op > layout::CONTROL_READ;
                words <= wanted[8:0];
                index <= 9'd0;
                state <= !is_whole || wanted == 16'd0 ? MARK :
                         op == layout::CONTROL_WRITE ? WRITE : op == layout::CONTROL_READ ? READ : MARK;
            end
            WRITE: begin
                index <= index + 1'b1;
                if (index + 9'd1 == words) state <= MARK;
            end
            READ: if (read_done) begin
                index <= index + 1'b1;
                if (index + 9'd1 == words) state <= MARK;
            end
            MARK: if (marker_taken) state <= ANSWER;
            ANSWER: if (answer_pop) begin
                row <= answer.last ? 5'd0 : row + 1'b1;
                if (answer.last) state <= RECEIVE;
            end
            default: state <= RECEIVE;
        endcase
    end

    // The bus. An address beyond 20 bits is in no memory.
    logic [32:0] address;
    assign address = {1'b0, first} + {24'd0, index};
    always_ff @(posedge clk) begin
        bus.write <= state == WRITE && !rst;
        bus.bank <= !bank;
        bus.memory <= (state == WRITE || state == READ) && memory[7:5] == 3'd0 && address[32:20] == 13'd0 ?
                      memory[4:0] : layout::MEMORY_NONE;
        bus.address <= address[19:0];
        bus.data <= word_out;
    end

    // Banks.
    assign marker = state == MARK && !bus.write;
    assign commit = marker_taken && op == layout::CONTROL_COMMIT && !refused;
    always_ff @(posedge clk) begin
        if (rst) begin
            bank <= 1'b0;
            configured <= 1'b0;
        end else if (commit) begin
            bank <= !bank;
            configured <= 1'b1;
        end
    end

    // The answer: addresses exchanged, the operation marked, no words but those that were read.
    integer w;
    assign answer_valid = state == ANSWER;
    always_comb begin
        answer.last = row == answer_last[10:6];
        answer.count = answer_last[5:0];
        answer.data = beat_out;
        if (row == 5'd0) begin
            answer.data[8*0+:48] = beat_out[8*6+:48];
            answer.data[8*6+:48] = beat_out[8*0+:48];
            answer.data[8*14+:8] = op | layout::CONTROL_ANSWER;
            if (refused) answer.data[8*20+:16] = 16'd0;
        end
        for (w = 0; w < 10; w = w + 1) begin
            if (row == 5'd0 && 9'(w) >= answer_words) answer.data[32*(6+w)+:32] = 32'd0;
        end
    end
endmodule
