#include "environment.hpp"

#include <cstring>
#include <mutex>
#include <random>

namespace rnd::atari {

// RAM at power-on is noise; this is the noise that ale-py always starts from.
// clang-format off
const u8 kPowerOnRam[128] = {
    0xB8, 0x96, 0xC0, 0x49, 0xCB, 0x55, 0xC8, 0x7F, 0xFB, 0xB4, 0x45, 0x66, 0x2B, 0x34, 0x10, 0xCA,
    0xB9, 0xCE, 0xFF, 0x8F, 0x4F, 0x44, 0xA1, 0x8A, 0x04, 0xC5, 0xCD, 0xFC, 0x75, 0xE7, 0x0A, 0xAD,
    0x2D, 0x9B, 0x60, 0x9E, 0xAA, 0x17, 0x1E, 0x54, 0xF9, 0x84, 0x51, 0x3E, 0x34, 0x97, 0x7C, 0x5E,
    0x50, 0xB6, 0x86, 0x85, 0xBE, 0x77, 0x45, 0x8B, 0x6D, 0x04, 0xB5, 0xEE, 0x42, 0x39, 0xC1, 0x4B,
    0x9C, 0x33, 0x52, 0x47, 0x49, 0xB3, 0xEE, 0x6B, 0x70, 0xAC, 0x24, 0x6B, 0xD4, 0xFE, 0xFE, 0xD6,
    0x17, 0xDC, 0x38, 0x9A, 0x49, 0x8E, 0x21, 0xAC, 0xD6, 0x1C, 0x0D, 0x5C, 0xDA, 0xAD, 0x0B, 0x77,
    0xA3, 0x6C, 0x28, 0x38, 0x51, 0xC5, 0x89, 0x5C, 0x5A, 0x16, 0x98, 0x55, 0x95, 0x5B, 0xAF, 0x4A,
    0xAF, 0x99, 0x0D, 0x4B, 0xEC, 0x0A, 0xBA, 0x5E, 0xA7, 0xBD, 0xE6, 0xF7, 0xAB, 0x14, 0x6F, 0xC0,
};
// clang-format on

namespace {

// SWCHA pins of player 0 that an action pulls low: D7 right, D6 left, D5 down, D4 up.
constexpr u8 kStick[kActions] = {
    0x00, 0x00, 0x10, 0x80, 0x40, 0x20, 0x90, 0x50, 0xA0, 0x60, 0x10, 0x80, 0x40, 0x20, 0x90, 0x50, 0xA0, 0x60,
};
constexpr bool presses_fire(u8 action) { return action == FIRE || action >= UPFIRE; }

constexpr u8 kSwitches = 0x3F;  // colour, amateur, nothing pressed
constexpr u8 kResetPressed = 0x3E;
constexpr u32 kPowerOns = 1 << 24;  // of one environment, after which their timers repeat
constexpr int kWarmUpFrames = 60;
constexpr int kResetFrames = 8;
constexpr int kResetFramesWithModes = 12;

void power_on(Machine& m, const Rom& rom, u8 timer, const u8* ram) {
    std::memset(&m, 0, sizeof m);
    std::memcpy(m.riot.ram, ram, sizeof m.riot.ram);
    m.riot.timer_shift = 6;
    m.riot.timer_zero = timer << 6;
    m.riot.timer_offset = -1;
    m.tia.vsync_clock = -1;
    m.tia.stale = 0x3F;
    for (u16& value : m.tia.shadow) value = 0x100;
    m.cartridge.image = rom.start_image;
    std::memcpy(m.cartridge.slice, rom.start_slice, sizeof m.cartridge.slice);
    const u8* image = rom.image(rom.start_image);
    m.cpu.pc = static_cast<u16>(image[0xFFC] | image[0xFFD] << 8);
    m.cpu.sp = 0xFF;
    m.cpu.nz = 1;
    m.cpu.interrupt = 1;
    m.swcha = 0xFF;
    m.swchb = kSwitches;
    m.frame_done = 1;
}

void set_joystick(Machine& m, u8 action) {
    m.swcha = static_cast<u8>(~kStick[action]);
    m.fire[0] = presses_fire(action);
}

// A frame that continues one that was cut is drawn into the same screen. One that is not drawn counts: a step that is played
// again, all drawn, must find each frame's rows on the screen on which the first try has drawn them.
bool run_frame(Environment& env, const Emulator& emulator, bool draw, u64& changed_rows) {
    if (env.machine.frame_done) env.newest ^= 1;
    const i64 start = env.machine.frame_cycle;
    emulator.run_frame(env.machine, draw ? env.screen[env.newest] : nullptr, changed_rows);
    const i64 lines = (env.machine.frame_cycle - start) / kCyclesPerLine;
    return env.machine.frame_done && (!draw || lines >= kFirstVisibleLine + kScreenHeight);
}

}  // namespace

const char* field_out_of_range(const Environment& env, const Rom& rom) {
    constexpr i32 kLargest = 1 << 30;  // one more step never overflows
    if (const char* field = field_out_of_range(env.machine, static_cast<int>(rom.images.size() / kImageStride))) return field;
    const Progress& progress = env.progress;
    for (i32 value : {progress.score, progress.lives, progress.reward})
        if (value < -kLargest || value > kLargest) return "score";
    if (progress.game_over != 0 && progress.game_over != 1) return "game_over";
    if (env.episode_frames < 0 || env.episode_frames > kLargest) return "episode_frames";
    if (env.executed >= kActions) return "executed";
    if (env.newest > 1) return "newest";
    return nullptr;
}

// The timer's noise at power-on comes from a generator that ale-py seeds with this constant; RAM took the first 128 numbers.
u8 power_on_timer(u32 power_ons) {
    static std::mutex mutex;
    static std::vector<u8> timers;
    static std::mt19937 generator = [] {
        std::mt19937 seeded(4'753'849);
        seeded.discard(131);
        return seeded;
    }();
    std::lock_guard lock(mutex);
    power_ons %= kPowerOns;
    while (timers.size() <= power_ons) timers.push_back(static_cast<u8>(25 + generator() % 75));
    return timers[power_ons];
}

void start_environment(Environment& env, const Emulator& emulator, u8 timer, const u8* ram) {
    const Game& game = emulator.game;
    power_on(env.machine, emulator.rom, timer, ram);
    std::memset(env.screen, 0, sizeof env.screen);
    env.newest = 0;
    u64 changed_rows = 0;
    auto frame = [&](u8 action, u8 switches) {
        set_joystick(env.machine, action);
        env.machine.swchb = switches;
        run_frame(env, emulator, true, changed_rows);
    };
    for (int i = 0; i < kWarmUpFrames; ++i) frame(NOOP, kSwitches);
    const int reset_frames = game.has_modes ? kResetFramesWithModes : kResetFrames;
    for (int i = 0; i < reset_frames; ++i) frame(NOOP, kResetPressed);
    env.progress = start_progress(game.rules);
    for (u8 action : game.start_actions) frame(action, kSwitches);
    env.machine.swchb = kSwitches;
    env.episode_frames = 0;
    env.executed = NOOP;
}

bool play_frame(Environment& env, const Emulator& emulator, u8 action, bool draw, u64& changed_rows) {
    set_joystick(env.machine, action);
    const bool whole = run_frame(env, emulator, draw, changed_rows);
    update_progress(emulator.game.rules, env.machine.riot.ram, env.progress);
    ++env.episode_frames;
    env.executed = action;
    return whole;
}

double draw_uniform(u64& generator) {
    generator += 0x9E3779B97F4A7C15u;
    u64 z = generator;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return static_cast<double>(z >> 11) * 0x1.0p-53;
}

}  // namespace rnd::atari
