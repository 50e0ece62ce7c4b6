// Drives the simulated card: reads batches of frames from standard input, sends them over both AXI streams, and writes
// the frames that come out to standard output. crates/simulation has the other end. Numbers are 32 bits,
// little-endian.
//
//   batch    stalls of s_wire, s_host, m_host, m_wire (of 256 cycles); seed; number of frames; frames
//   frame    port (0 wire, 1 host); frames of the other port that are sent before; length; bytes
//   answer   number of frames; frames: port (0 wire, 1 host); cycle of the first beat; of the last; length; bytes
//
// A batch ends when all frames are sent and the card is idle. A violation of AXI ends the program.
#include "Vcard.h"
#include "verilated.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr unsigned BEAT = 64;
constexpr unsigned QUIET_CYCLES = 64;
constexpr uint64_t STUCK_CYCLES = 1u << 20;

[[noreturn]] void fail(const char *message) {
    std::fprintf(stderr, "driver: %s\n", message);
    std::exit(1);
}

bool read_number(uint32_t &number) { return std::fread(&number, sizeof number, 1, stdin) == 1; }

uint32_t number() {
    uint32_t value;
    if (!read_number(value)) fail("the batch ends early");
    return value;
}

void write_number(uint32_t value) { std::fwrite(&value, sizeof value, 1, stdout); }

struct Random {
    uint64_t state;
    uint64_t next() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return state;
    }
    bool once_in_256(uint32_t times) { return (next() >> 24 & 255) < times; }
};

struct Frame {
    uint32_t after = 0;
    uint32_t first = 0;
    uint32_t last = 0;
    std::vector<uint8_t> bytes;
};

/// A beat of a stream.
struct Beat {
    uint8_t data[BEAT];
    uint64_t keep;
    bool last;
    bool operator==(const Beat &other) const {
        return keep == other.keep && last == other.last && std::memcmp(data, other.data, BEAT) == 0;
    }
};

/// Sends frames. A beat that is offered stays until it is taken.
struct Sender {
    std::vector<Frame> frames;
    size_t sent = 0;
    size_t offset = 0;
    bool offered = false;
    Beat beat;

    bool done() const { return sent == frames.size(); }

    void offer(Random &random, uint32_t stall, size_t others) {
        if (offered || done() || frames[sent].after > others || random.once_in_256(stall)) return;
        const auto &bytes = frames[sent].bytes;
        size_t count = std::min<size_t>(BEAT, bytes.size() - offset);
        // Lanes without bytes have any value.
        for (auto &byte : beat.data) byte = random.next() >> 16;
        std::memcpy(beat.data, bytes.data() + offset, count);
        beat.keep = ~0ull >> (BEAT - count);
        beat.last = offset + count == bytes.size();
        offered = true;
    }

    void taken() {
        offered = false;
        offset = beat.last ? 0 : offset + BEAT;
        sent += beat.last;
    }
};

/// Collects frames and checks the rules of the stream.
struct Receiver {
    std::vector<Frame> frames;
    Frame current;
    bool waits = false;
    Beat before;

    void see(bool valid, bool ready, const Beat &beat, uint64_t cycle) {
        if (waits && !(valid && beat == before)) fail("a beat changed before it was taken");
        waits = valid && !ready;
        before = beat;
        if (!valid || !ready) return;
        unsigned count = __builtin_popcountll(beat.keep);
        if (count == 0 || beat.keep != ~0ull >> (BEAT - count)) fail("tkeep has gaps");
        if (!beat.last && count != BEAT) fail("a beat in the middle is not full");
        if (current.bytes.empty()) current.first = cycle;
        current.bytes.insert(current.bytes.end(), beat.data, beat.data + count);
        if (beat.last) {
            current.last = cycle;
            frames.push_back(std::move(current));
            current = Frame();
        }
    }

    void write(uint32_t port) const {
        for (const auto &frame : frames) {
            write_number(port);
            write_number(frame.first);
            write_number(frame.last);
            write_number(frame.bytes.size());
            std::fwrite(frame.bytes.data(), 1, frame.bytes.size(), stdout);
        }
    }
};

struct Bench {
    VerilatedContext context;
    Vcard card{&context};
    uint64_t cycle = 0;

    void clock() {
        card.clk = 1;
        card.eval();
        card.clk = 0;
        cycle++;
    }

    void reset() {
        card.clk = 0;
        card.rst = 1;
        for (int i = 0; i < 4; i++) {
            card.eval();
            clock();
        }
        card.rst = 0;
    }

    void run(Sender &wire, Sender &host, Receiver &to_wire, Receiver &to_host, const uint32_t *stalls, Random random) {
        uint64_t moved = cycle;
        unsigned quiet = 0;
        while (quiet < QUIET_CYCLES) {
            wire.offer(random, stalls[0], host.sent);
            host.offer(random, stalls[1], wire.sent);
            std::memcpy(card.s_wire_tdata.data(), wire.beat.data, BEAT);
            card.s_wire_tkeep = wire.beat.keep;
            card.s_wire_tlast = wire.beat.last;
            card.s_wire_tvalid = wire.offered;
            std::memcpy(card.s_host_tdata.data(), host.beat.data, BEAT);
            card.s_host_tkeep = host.beat.keep;
            card.s_host_tlast = host.beat.last;
            card.s_host_tvalid = host.offered;
            card.m_host_tready = !random.once_in_256(stalls[2]);
            card.m_wire_tready = !random.once_in_256(stalls[3]);
            card.eval();
            Beat beat;
            std::memcpy(beat.data, card.m_host_tdata.data(), BEAT);
            beat.keep = card.m_host_tkeep;
            beat.last = card.m_host_tlast;
            to_host.see(card.m_host_tvalid, card.m_host_tready, beat, cycle);
            std::memcpy(beat.data, card.m_wire_tdata.data(), BEAT);
            beat.keep = card.m_wire_tkeep;
            beat.last = card.m_wire_tlast;
            to_wire.see(card.m_wire_tvalid, card.m_wire_tready, beat, cycle);
            bool takes_wire = card.s_wire_tvalid && card.s_wire_tready;
            bool takes_host = card.s_host_tvalid && card.s_host_tready;
            if (takes_wire || takes_host || (card.m_host_tvalid && card.m_host_tready)) moved = cycle;
            if (cycle - moved > STUCK_CYCLES) fail("the card is stuck");
            quiet = wire.done() && host.done() && !card.busy ? quiet + 1 : 0;
            clock();
            if (takes_wire) wire.taken();
            if (takes_host) host.taken();
        }
    }
};

} // namespace

int main() {
    Bench bench;
    bench.reset();
    uint32_t stalls[4];
    while (read_number(stalls[0])) {
        for (int i = 1; i < 4; i++) stalls[i] = number();
        Random random{number() | 1ull << 40};
        Sender senders[2] = {};
        for (uint32_t count = number(); count > 0; count--) {
            uint32_t port = number();
            if (port > 1) fail("there is no such port");
            Frame frame;
            frame.after = number();
            frame.bytes.resize(number());
            if (frame.bytes.empty()) fail("a frame has no bytes");
            if (std::fread(frame.bytes.data(), 1, frame.bytes.size(), stdin) != frame.bytes.size()) {
                fail("the frame ends early");
            }
            senders[port].frames.push_back(std::move(frame));
        }
        Receiver to_wire, to_host;
        bench.run(senders[0], senders[1], to_wire, to_host, stalls, random);
        write_number(to_wire.frames.size() + to_host.frames.size());
        to_wire.write(0);
        to_host.write(1);
        std::fflush(stdout);
    }
    return 0;
}
