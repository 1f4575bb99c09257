// Plays supported games and random "ROMs" under the sanitizers. Built with -DRND_SANITIZE=ON; see docs/native.md.
//
//   sanitize FRAMES GAME=ROM_FILE ...     plays each game for FRAMES raw frames, with saving, restoring and two threads
//   sanitize random COUNT                 plays COUNT random ROMs of 2K, 4K, 8K and 16K under made-up rules

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "batch.hpp"

using namespace rnd::atari;

namespace {

u64 noise(u64& state) {
    draw_uniform(state);
    return (state ^ state >> 29) * 0xBF58476D1CE4E5B9u >> 16;
}

struct Arrays {
    explicit Arrays(int n) : actions(n), frames(std::size_t{kFrameBytes} * n), terminated(n), truncated(n), ram(128 * n), final_ram(128 * n), rewards(n), lives(n) {}
    StepArrays view() {
        return {actions.data(), frames.data(), rewards.data(), terminated.data(), truncated.data(), ram.data(), lives.data(), final_ram.data()};
    }
    std::vector<i64> actions;
    std::vector<u8> frames, terminated, truncated, ram, final_ram;
    std::vector<float> rewards;
    std::vector<i32> lives;
};

void play(const std::vector<u8>& rom, const Game& game, int frames, const std::string& simd, u64 seed) {
    constexpr int kEnvironments = 3;
    Options options;
    options.threads = 2;
    options.simd = simd;
    options.max_episode_frames = 5'000;
    Batch batch(rom.data(), rom.size(), game, {seed, seed + 1, seed + 2}, options);
    Arrays arrays(kEnvironments);
    batch.reset(arrays.view(), 0, kEnvironments);
    for (int done = 0, step = 0; done < frames; done += 4 * kEnvironments, ++step) {
        for (i64& action : arrays.actions) action = static_cast<i64>(noise(seed) % static_cast<u64>(batch.action_count()));
        batch.step(arrays.view(), 0, kEnvironments);
        if (step % 200 == 199) {
            const std::vector<u8> blob = batch.save(0);
            batch.load(1, blob.data(), blob.size());
            batch.raw_act(2, static_cast<int>(noise(seed) % kActions));
            batch.raw_reset(2);
        }
    }
}

std::vector<std::string> engines() {
    std::vector<std::string> names;
    for (const char* name : {"portable", "avx2", "avx512"}) {
        try {
            choose_engine(name);
            names.push_back(name);
        } catch (const std::invalid_argument&) {
        }
    }
    return names;
}

void play_random(int count) {
    const std::size_t sizes[] = {2048, 4096, 8192, 8192, 16384};
    const Scheme schemes[] = {Scheme::k4K, Scheme::k4K, Scheme::kF8, Scheme::kE0, Scheme::kF6};
    u64 seed = 1;
    const std::vector<std::string> simd = engines();
    for (int i = 0; i < count; ++i) {
        std::vector<u8> rom(sizes[i % 5]);
        for (u8& byte : rom) byte = static_cast<u8>(noise(seed));
        Game game = all_games().front();
        game.name = "random";
        game.scheme = schemes[i % 5];
        play(rom, game, 120, simd[static_cast<std::size_t>(i) % simd.size()], seed);
        std::vector<u8> broken(noise(seed) % 20'000);
        try {
            make_rom(broken.data(), broken.size());
        } catch (const std::invalid_argument&) {
        }
    }
    std::printf("%d random ROMs: clean\n", count);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) return std::fprintf(stderr, "usage: sanitize FRAMES GAME=ROM_FILE ... | sanitize random COUNT\n"), 2;
    if (std::string(argv[1]) == "random") return play_random(std::atoi(argv[2])), 0;
    for (int i = 2; i < argc; ++i) {
        const std::string argument = argv[i];
        const std::size_t equals = argument.find('=');
        const Game* game = find_game(argument.substr(0, equals));
        std::ifstream file(argument.substr(equals + 1), std::ios::binary);
        if (!game || !file) return std::fprintf(stderr, "cannot play %s\n", argument.c_str()), 2;
        const std::vector<u8> rom((std::istreambuf_iterator<char>(file)), {});
        const std::vector<std::string> simd = engines();
        for (const std::string& name : simd) play(rom, *game, std::atoi(argv[1]) / static_cast<int>(simd.size()) + 1, name, 7);
        std::printf("%s: clean\n", game->name);
    }
}
