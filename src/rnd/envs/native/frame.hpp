// One frame of the console. Included once for each target, with RND_TARGET naming its namespace.
#pragma once

#include "cpu.hpp"

namespace rnd::atari::RND_TARGET {

// Returns false, with the machine as it was, when a translated program cannot play the frame.
inline bool play_frame(Bus& bus, const Rom& rom) {
    Machine& m = bus.m;
#if defined(RND_TRANSLATED)
    if (!m.frame_done) return false;  // the interpreter cut the last frame, and finishes it
    const Machine before = m;
#endif
    m.frame_done = 0;
    if (!bus.screen) begin_unseen(bus);
    if (!run_cpu(bus, rom)) {
#if defined(RND_TRANSLATED)
        m = before;
#endif
        return false;
    }
    // A frame that was cut is drawn up to the program's last access to the TIA, as in ale-py.
    if (m.frame_done)
        advance(bus, m.cycle * 3);
    else if (bus.touched >= 0)
        advance(bus, bus.touched * 3 + write_delay(bus.touched_register, bus.touched));
    if (!bus.screen) end_unseen(bus);
    // The next frame counts from the line in which this one ended. One that was cut continues, and only lines past the longest
    // frame are forgotten, so that the counter of a program that hangs stays small.
    const i32 lines = m.frame_done ? m.cycle / kCyclesPerLine : (m.cycle - kFrameCycles) / kCyclesPerLine;
    m.cycle -= lines * kCyclesPerLine;
    m.frame_cycle += i64{lines} * kCyclesPerLine;
    if (m.frame_done) {
        m.tia.line -= lines;
    } else if (m.tia.line > m.cycle / kCyclesPerLine) {
        m.tia.line = m.cycle / kCyclesPerLine;
        m.tia.clock = 0;
    }
    return true;
}

inline bool run_frame(Machine& m, const Rom& rom, u8* screen, u64* changed_rows) {
    Bus bus{m, screen, changed_rows};
    return play_frame(bus, rom);
}

}  // namespace rnd::atari::RND_TARGET
