#include "recording.hpp"

#define RND_TARGET recording
#define RND_RECORDING
#include "environment.hpp"
#include "frame.hpp"

namespace rnd::atari {

namespace {

thread_local u8* reached_places = nullptr;

bool run_frame(Machine& m, const Rom& rom, u8*, u64* changed_rows) {
    recording::Bus bus{m, nullptr, changed_rows, reached_places};
    return recording::play_frame(bus, rom);
}

constexpr Engine kRecordingEngine = {"recording", run_frame, nullptr, nullptr};
constexpr int kEpisodeFrames = 6'000;
constexpr int kPokeFrames = 100;

}  // namespace

std::vector<u8> record_reached(const u8* rom, std::size_t rom_size, const Game& game, int frames, u64 seed) {
    std::vector<u8> reached(kPlaces);
    reached_places = reached.data();
    const Player player{kRecordingEngine, game, make_rom(rom, rom_size, game.scheme)};
    const auto env = std::make_unique<Environment>();
    u64 changed_rows = 0;
    auto below = [&](int n) { return static_cast<int>(draw_uniform(seed) * n); };
    start_environment(*env, player, power_on_timer(0), kPowerOnRam);
    for (int done = 0, held = 0, action = 0; done < frames; ++done) {
        // Every other episode holds its actions for up to a second, so that it gets somewhere.
        if (held-- <= 0) {
            action = below(kActions);
            held = env->power_ons % 2 ? below(60) : 0;
        }
        // Two episodes of three get a byte of memory changed now and then. That leads to rooms and objects that chance alone does
        // not find, and a good player does.
        if (env->power_ons % 3 && below(kPokeFrames) == 0) env->machine.riot.ram[below(128)] = static_cast<u8>(below(256));
        play_frame(*env, player, static_cast<u8>(action), false, changed_rows);
        const bool hangs = !env->machine.frame_done;
        if (hangs || env->progress.game_over || env->episode_frames >= kEpisodeFrames) {
            const u32 power_ons = ++env->power_ons;
            u8 ram[128];
            std::memcpy(ram, env->machine.riot.ram, sizeof ram);
            start_environment(*env, player, power_on_timer(power_ons), ram);
        }
    }
    reached_places = nullptr;
    return reached;
}

}  // namespace rnd::atari
