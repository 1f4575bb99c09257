// The TIA's time. A line is advanced lazily, up to the colour clock of the write or read that needs it: collisions are ANDs of
// masks, pixels are blends by mask. A write needs only what it changes, and a read of a collision no pixels. On a frame that
// nobody will see, time is one number, and lines are looked at only while a new collision is possible.
#pragma once

#include "tia_objects.hpp"

namespace rnd::atari::RND_TARGET {

// What an instruction sees beside the machine itself. Not part of the state.
struct Bus {
    Machine& m;
    u8* screen;               // 210 x 160 colour bytes, or null when this frame will not be seen
    u64* changed_rows;        // a bit is set for every five rows of `screen` of which a pixel changes
    u8* reached = nullptr;    // with RND_RECORDING: `Reached` of every place
    i32 touched = -1;         // the cycle of the frame at which the program last wrote or read a register of the TIA,
    u8 touched_register = 0;  // and which one it wrote
    i32 collided = 0;         // of a frame that is seen: the clock of the line up to which collisions are done, if they are ahead of pixels
    // Of a frame that is not seen:
    i32 at = 0;         // colour clocks that are done, counted as in `advance`
    i32 comb_line = 0;  // the line at which `hmove_blank` is up to date
    unsigned live = 0;  // bit per object: its registers show it somewhere
    unsigned open = 0;  // not zero: passing time can change something
};

enum : u8 { kBlankThisLine = 1, kBlankNextLine = 2 };

// Nothing outside these lines is drawn or collides.
inline bool is_visible_line(i32 line) { return static_cast<u32>(line - kFirstVisibleLine) < kScreenHeight; }

inline void collide(Tia& tia, unsigned visible, int x0, int x1) {
    const bool whole = x0 == 0 && x1 == kScreenWidth;
    if (whole && tia.line_is_collided) return;
    tia.line_is_collided = whole;
    const unsigned wanted = kPossible.latches[visible] & ~unsigned{tia.collision};
    if (!wanted) return;
    if (tia.stale & visible) {
        unsigned needed = 0;
        for (int object = 0; object < kObjects; ++object)
            needed |= static_cast<unsigned>((kPairOf.latches[object] & wanted) != 0) << object;
        refresh_masks(tia, needed);
    }
    tia.collision |= collisions(tia.mask, wanted, x0, x1);
}

// Draws and collides clocks [from, to) of the current line.
[[gnu::noinline]] inline void segment(Bus& bus, int from, int to) {
    Tia& tia = bus.m.tia;
    if (!is_visible_line(tia.line)) return;
    int x0 = from > kHblankClocks ? from - kHblankClocks : 0;
    const int x1 = to - kHblankClocks;
    const int row = tia.line - kFirstVisibleLine;
    u8* pixels = bus.screen + row * kScreenWidth;
    auto note = [&](bool differs) { *bus.changed_rows |= static_cast<u64>(differs) << row / kRowsPerGroup; };
    if (tia.VBLANK & 2) return note(blank(pixels, x0, x1));
    refresh_masks(tia);
    const int c0 = bus.collided - kHblankClocks > x0 ? bus.collided - kHblankClocks : x0;
    if (c0 < x1) collide(tia, tia.visible, c0, x1);
    // Objects collide under the comb too, but are not seen there.
    if (tia.hmove_blank == kBlankThisLine && x0 < 8) {
        const int end = x1 < 8 ? x1 : 8;
        note(blank(pixels, x0, end));
        x0 = end;
        if (x0 == x1) return;
    }
    note(draw(tia, pixels, x0, x1));
}

inline void set_reflection(Tia& tia) {
    if (tia.reflected == (tia.CTRLPF & 1)) return;
    tia.reflected = tia.CTRLPF & 1;
    mark_stale(tia, 1u << PF);
}

inline void lift_suppression(Tia& tia) {
    if (!(tia.suppress[0] | tia.suppress[1])) return;
    tia.suppress[0] = tia.suppress[1] = 0;
    mark_stale(tia, 1u << P0 | 1u << P1);
}

// In ale-py neither a line outside the screen nor its last row has an end: what lasts until the end of a line then lasts until
// that of the first row.
inline bool has_end(i32 line) { return is_visible_line(line) && is_visible_line(line + 1); }

inline void end_line(Tia& tia, i32 line) {
    if (!has_end(line)) return;
    set_reflection(tia);
    lift_suppression(tia);
}

// The comb at the start of line `to`, when it was `blank` in line `from`.
constexpr u8 comb_after(u8 blank, i32 from, i32 to) {
    if (blank == kBlankNextLine && from < to) {
        blank = kBlankThisLine;
        ++from;
    }
    const i32 first = from > kFirstVisibleLine ? from : kFirstVisibleLine;
    const bool passed = first < to && first < kFirstVisibleLine + kScreenHeight;
    return blank == kBlankThisLine && passed ? 0 : blank;
}

// What time can still change on a frame that is not seen: a latch, or how an object looks from the next line on.
[[gnu::always_inline]] inline void look_ahead(Bus& bus) {
    const Tia& tia = bus.m.tia;
    const unsigned latches = tia.VBLANK & 2 ? 0u : kPossible.latches[bus.live] & ~unsigned{tia.collision};
    bus.open = latches | unsigned{tia.suppress[0]} | tia.suppress[1] | ((tia.reflected ^ tia.CTRLPF) & 1u);
}

[[gnu::noinline]] inline void advance_unseen(Bus& bus, i32 clock) {
    Tia& tia = bus.m.tia;
    i32 line = bus.at / kClocksPerLine;
    i32 from = bus.at - line * kClocksPerLine, target = clock - line * kClocksPerLine;
    auto collide_until = [&](int end) {
        if (end <= from || end <= kHblankClocks || tia.VBLANK & 2 || !is_visible_line(line)) return;
        collide(tia, bus.live, from > kHblankClocks ? from - kHblankClocks : 0, end - kHblankClocks);
    };
    for (; target >= kClocksPerLine; target -= kClocksPerLine, ++line, from = 0) {
        collide_until(kClocksPerLine);
        end_line(tia, line);
    }
    collide_until(target);
    bus.at = clock;
    look_ahead(bus);
}

// Brings the screen up to `clock`, counted from the start of the frame.
inline void advance(Bus& bus, i32 clock) {
    Tia& tia = bus.m.tia;
    if (!bus.screen) {
        if (clock <= bus.at) return;
        if (bus.open) advance_unseen(bus, clock);
        bus.at = clock;
        return;
    }
    i32 target = clock - tia.line * kClocksPerLine;
    while (target >= kClocksPerLine) {
        segment(bus, tia.clock, kClocksPerLine);
        end_line(tia, tia.line);
        tia.hmove_blank = comb_after(tia.hmove_blank, tia.line, tia.line + 1);
        ++tia.line;
        tia.clock = bus.collided = 0;
        target -= kClocksPerLine;
    }
    if (target > tia.clock) {
        if (target > kHblankClocks) segment(bus, tia.clock, target);
        tia.clock = target;
    }
}

// The lines before that of `clock`, on a frame that is seen. Returns the clock of the line.
inline i32 advance_lines(Bus& bus, i32 clock) {
    const Tia& tia = bus.m.tia;
    const i32 target = clock - tia.line * kClocksPerLine;
    if (target < kClocksPerLine) return target;
    advance(bus, clock - static_cast<i32>(static_cast<u32>(target) % kClocksPerLine));
    return clock - tia.line * kClocksPerLine;
}

// Brings collisions up to `clock`. The pixels of its line may wait.
inline void advance_collisions(Bus& bus, i32 clock) {
    if (!bus.screen) return advance(bus, clock);
    Tia& tia = bus.m.tia;
    const i32 target = advance_lines(bus, clock);
    const i32 from = tia.clock > bus.collided ? tia.clock : bus.collided;
    if (target <= from) return;
    bus.collided = target;
    if (target <= kHblankClocks || tia.VBLANK & 2 || !is_visible_line(tia.line)) return;
    refresh_masks(tia);
    collide(tia, tia.visible, from > kHblankClocks ? from - kHblankClocks : 0, target - kHblankClocks);
}

// ---- changes that show in a part of the line alone ----

// Like `advance`, before a change that can be seen only where `shows(x0, x1)`: pixels of the line of `clock` that look the same
// before and after it may wait.
template <typename Shows>
[[gnu::always_inline]] inline void advance_where(Bus& bus, i32 clock, Shows&& shows) {
    Tia& tia = bus.m.tia;
    auto shown = [&](i32 from, i32 to) {
        const int x0 = from > kHblankClocks ? from - kHblankClocks : 0, x1 = to - kHblankClocks;
        return x0 < x1 && (score_depends_on_objects(tia) || shows(x0, x1));
    };
    if (bus.screen) {
        const i32 target = advance_lines(bus, clock);
        if (shown(tia.clock, target)) advance(bus, clock);
    } else if (!bus.open) {
        advance(bus, clock);
    } else if (clock > bus.at) {
        const i32 start = clock - static_cast<i32>(static_cast<u32>(clock) % kClocksPerLine);
        advance(bus, start);
        if (shown(bus.at - start, clock - start)) advance(bus, clock);
    }
}

// Whether pixels [x0, x1) have one of `width` pixels from `first` on. What leaves the line on the right comes in on the left.
inline bool overlaps(int first, int width, int x0, int x1) {
    int gap = first - x0;
    if (gap < 0) gap += kScreenWidth;
    if (gap >= kScreenWidth) gap -= kScreenWidth;
    return gap < x1 - x0 || gap + width > kScreenWidth;
}

// Whether pixels [x0, x1) can show an object, whatever its graphics and size.
inline bool reaches(const Tia& tia, Object object, int x0, int x1) {
    constexpr int kLargest = 8;  // of a missile, and of the ball
    if (object == BL) return overlaps(tia.position[BL], kLargest, x0, x1);
    const Copies& copies = kCopies[tia.NUSIZ[object & 1] & 7];
    const int width = object <= P1 ? (8 << copies.scale) + 1 : kLargest;  // wide players start one clock later
    for (int i = 0; i < copies.count; ++i)
        if (overlaps(tia.position[object] + copies.offset[i], width, x0, x1)) return true;
    return false;
}

// The same for register n of the playfield.
inline bool playfield_reaches(const Tia& tia, int n, int x0, int x1) {
    constexpr u8 kEdge[4] = {0, 16, 48, 80};
    auto within = [&](int first, int end) { return x0 < end && x1 > first; };
    if (within(kEdge[n], kEdge[n + 1])) return true;
    return tia.reflected ? within(kScreenWidth - kEdge[n + 1], kScreenWidth - kEdge[n]) : within(80 + kEdge[n], 80 + kEdge[n + 1]);
}

// ---- frames that are not seen: from line and clock to one number, and back ----

inline void begin_unseen(Bus& bus) {
    const Tia& tia = bus.m.tia;
    bus.at = tia.line * kClocksPerLine + tia.clock;
    bus.comb_line = tia.line;
    bus.live = live_objects(tia, kAllObjects);
    look_ahead(bus);
}

inline void update_comb(Bus& bus, i32 clock) {
    if (bus.screen) return;
    const i32 line = clock / kClocksPerLine;
    bus.m.tia.hmove_blank = comb_after(bus.m.tia.hmove_blank, bus.comb_line, line);
    bus.comb_line = line;
}

inline void end_unseen(Bus& bus) {
    update_comb(bus, bus.at);
    bus.m.tia.line = bus.at / kClocksPerLine;
    bus.m.tia.clock = bus.at % kClocksPerLine;
}

// After registers of `objects` changed.
[[gnu::always_inline]] inline void changed(Bus& bus, unsigned objects) {
    mark_stale(bus.m.tia, objects);
    if (bus.screen) return;
    bus.live = (bus.live & ~objects) | live_objects(bus.m.tia, objects);
    look_ahead(bus);
}

}  // namespace rnd::atari::RND_TARGET
