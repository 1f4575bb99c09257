// One environment: a machine, the rules of its game, the sticky generator and the last two screens.
#pragma once

#include <atomic>

#include "engine.hpp"
#include "games.hpp"

namespace rnd::atari {

// What emulates a game: the interpreter, and the translated program as soon as there is one.
struct Emulator {
    const Engine& engine;
    const Game& game;
    Rom rom;
    std::atomic<FrameFunction> translated = nullptr;

    void run_frame(Machine& m, u8* screen, u64& changed_rows) const {
        const FrameFunction fast = translated.load(std::memory_order_acquire);
        if (!fast || !fast(m, rom, screen, &changed_rows)) engine.run_frame(m, rom, screen, &changed_rows);
    }
};

// Plain data: saving an environment is copying these bytes.
struct Environment {
    Machine machine;
    Progress progress;
    u64 generator;       // SplitMix64
    i32 episode_frames;  // raw frames since the reset
    u32 power_ons;       // before this one; decides the timer's value at the start
    u8 executed;         // the action of the last raw frame
    u8 newest;           // which of the two screens was drawn last
    u8 screen[2][kScreenBytes];
};
static_assert(std::is_trivially_copyable_v<Environment>);

// For environments that are loaded: the first field that is out of range, or null.
const char* field_out_of_range(const Environment& env, const Rom& rom);

// What the timer holds at the n-th power-on. Some games take their first random number from it.
u8 power_on_timer(u32 power_ons);

// RAM when the console is switched on for the first time.
extern const u8 kPowerOnRam[128];

// Switches the machine on and plays the game's start-up, as ale-py's reset_game does. RAM keeps what it holds over a reset.
void start_environment(Environment& env, const Emulator& emulator, u8 timer, const u8* ram);

// One raw frame of `action`; drawn when asked for, with `changed_rows` as in FrameFunction. Returns false when the frame leaves
// rows of its screen as they were: it was cut, or drawn and shorter than the screen.
bool play_frame(Environment& env, const Emulator& emulator, u8 action, bool draw, u64& changed_rows);

// A uniform number in [0, 1).
double draw_uniform(u64& generator);

}  // namespace rnd::atari
