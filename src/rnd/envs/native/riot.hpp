// RIOT 6532: the interval timer and the two ports. RAM is read and written by the CPU directly.
#pragma once

#include "machine.hpp"

namespace rnd::atari::RND_TARGET {

// The timer shows the written value less one after the write, counts down once per interval, and once per cycle when it has
// run out. The first INTIM read after that makes it count intervals again, from where it then is.
inline void riot_set_timer(Riot& riot, u8 shift, u8 value, i64 cycle) {
    riot.timer_shift = shift;
    riot.timer_zero = cycle + (i64{value} << shift);
    riot.timer_offset = -1;
}

inline u8 riot_read_timer(Riot& riot, i64 cycle) {
    const i64 left = riot.timer_zero - cycle;
    if (left >= 0) return static_cast<u8>(left >> riot.timer_shift);
    if (left == -1) return 0xFF;
    if (riot.timer_offset < 0) riot.timer_offset = -left - 1;
    return static_cast<u8>((left >> riot.timer_shift) - riot.timer_offset);
}

inline u8 riot_read(Machine& m, u16 address, i64 cycle) {
    Riot& riot = m.riot;
    switch (address & 7) {
        case 0: return static_cast<u8>((m.swcha & ~riot.swacnt) | (riot.swcha_out & riot.swacnt));
        case 1: return riot.swacnt;
        case 2: return m.swchb;
        case 3: return riot.swbcnt;
        case 4:
        case 6: return riot_read_timer(riot, cycle);
        default: return riot.timer_zero - cycle >= 0 || riot.timer_offset >= 0 ? 0x00 : 0x80;
    }
}

inline void riot_write(Machine& m, u16 address, u8 value, i64 cycle) {
    static constexpr u8 kShift[4] = {0, 3, 6, 10};
    if (address & 0x10 && address & 4) {
        riot_set_timer(m.riot, kShift[address & 3], value, cycle);
        return;
    }
    switch (address & 7) {
        case 0: m.riot.swcha_out = value; break;
        case 1: m.riot.swacnt = value; break;
        case 3: m.riot.swbcnt = value; break;
        default: break;
    }
}

}  // namespace rnd::atari::RND_TARGET
