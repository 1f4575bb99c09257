// Included by one source file for each target, with RND_TARGET naming its namespace.
#include "cpu.hpp"
#include "engine.hpp"
#include "observe.hpp"

namespace rnd::atari::RND_TARGET {

inline void run_frame(Machine& m, const Rom& rom, u8* screen) {
    Bus bus{m, screen};
    m.frame_done = 0;
    run_cpu(bus, rom);
    advance(bus, m.cycle * 3);
    // The next frame counts from the line in which this one ended.
    const i32 lines = m.cycle / kCyclesPerLine;
    m.cycle -= lines * kCyclesPerLine;
    m.tia.line -= lines;
    m.frame_cycle += i64{lines} * kCyclesPerLine;
}

}  // namespace rnd::atari::RND_TARGET
