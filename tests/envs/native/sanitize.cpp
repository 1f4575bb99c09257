// Plays supported games and random "ROMs" under the sanitizers. Built with -DRND_SANITIZE=ON; see docs/native.md.
//
//   sanitize FRAMES GAME=ROM_FILE ...     plays each game for FRAMES raw frames, with saving, restoring and two threads,
//                                         and records it for a translation
//   sanitize random COUNT                 plays COUNT random ROMs of 2K, 4K, 8K and 16K under made-up rules
//   sanitize states COUNT GAME=ROM_FILE   loads COUNT saved states with bytes changed and the checksum made to fit, and plays on

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "batch.hpp"
#include "recording.hpp"

using namespace rnd::atari;

namespace {

u64 noise(u64& state) {
    draw_uniform(state);
    return (state ^ state >> 29) * 0xBF58476D1CE4E5B9u >> 16;
}

struct Arrays {
    explicit Arrays(int n)
        : actions(n),
          frames(std::size_t{kObservationBytes} * n),
          terminated(n),
          truncated(n),
          ram(128 * n),
          final_ram(128 * n),
          rewards(n),
          lives(n) {}
    StepArrays view() {
        return {actions.data(),   frames.data(), rewards.data(), terminated.data(),
                truncated.data(), ram.data(),    lives.data(),   final_ram.data()};
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
        } catch (const std::invalid_argument&) {}
    }
    return names;
}

// Changes one to four bytes of what a saved state holds besides the screens, and makes the checksum fit again.
void mutate(std::vector<u8>& blob, u64& seed) {
    constexpr std::size_t kHeader = 56;
    static_assert(sizeof(Environment) > 2 * kScreenBytes);
    constexpr std::size_t kFields = sizeof(Environment) - 2 * kScreenBytes;
    const u8 edges[] = {0, 1, 2, 3, 7, 8, 0x3F, 0x40, 0x7F, 0x80, 0xA0, 0xFF};
    for (u64 changes = 1 + noise(seed) % 4; changes; --changes) {
        const u64 draw = noise(seed);
        blob[kHeader + noise(seed) % kFields] = draw & 1 ? edges[(draw >> 1) % sizeof edges] : static_cast<u8>(draw >> 8);
    }
    u64 hash = 0xCBF29CE484222325u;
    for (std::size_t i = kHeader; i < blob.size(); ++i) hash = (hash ^ blob[i]) * 0x100000001B3u;
    std::memcpy(blob.data() + kHeader - sizeof hash, &hash, sizeof hash);
}

void load_mutated(const std::vector<u8>& rom, const Game& game, int count) {
    u64 seed = 11;
    int refused = 0;
    for (const std::string& simd : engines()) {
        Options options;
        options.simd = simd;
        Batch batch(rom.data(), rom.size(), game, {seed}, options);
        Arrays arrays(1);
        batch.reset(arrays.view(), 0, 1);
        const std::vector<u8> whole = batch.save(0);
        for (int i = 0; i < count; ++i) {
            std::vector<u8> blob = whole;
            mutate(blob, seed);
            try {
                batch.load(0, blob.data(), blob.size());
            } catch (const std::invalid_argument&) {
                ++refused;
                batch.load(0, whole.data(), whole.size());
            }
            for (int step = 0; step < 5; ++step) {
                arrays.actions[0] = static_cast<i64>(noise(seed) % static_cast<u64>(batch.action_count()));
                batch.step(arrays.view(), 0, 1);
            }
            const std::vector<u8> after = batch.save(0);
            batch.load(0, after.data(), after.size());  // what was accepted leaves only what is accepted
        }
    }
    std::printf("%s: clean, %d of %d refused\n", game.name, refused, count * static_cast<int>(engines().size()));
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
        record_reached(rom.data(), rom.size(), game, i % 60, seed);
        std::vector<u8> broken(noise(seed) % 20'000);
        try {
            make_rom(broken.data(), broken.size());
        } catch (const std::invalid_argument&) {}
    }
    std::printf("%d random ROMs: clean\n", count);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) return std::fprintf(stderr, "usage: sanitize FRAMES|random COUNT|states COUNT GAME=ROM_FILE ...\n"), 2;
    const bool states = std::string(argv[1]) == "states";
    if (std::string(argv[1]) == "random") return play_random(std::atoi(argv[2])), 0;
    for (int i = states ? 3 : 2; i < argc; ++i) {
        const std::string argument = argv[i];
        const std::size_t equals = argument.find('=');
        const Game* game = find_game(argument.substr(0, equals));
        std::ifstream file(argument.substr(equals + 1), std::ios::binary);
        if (!game || !file) return std::fprintf(stderr, "cannot play %s\n", argument.c_str()), 2;
        const std::vector<u8> rom((std::istreambuf_iterator<char>(file)), {});
        if (states) {
            load_mutated(rom, *game, std::atoi(argv[2]));
            continue;
        }
        const std::vector<std::string> simd = engines();
        for (const std::string& name : simd) play(rom, *game, std::atoi(argv[1]) / static_cast<int>(simd.size()) + 1, name, 7);
        record_reached(rom.data(), rom.size(), *game, std::atoi(argv[1]) / 10, 7);
        std::printf("%s: clean\n", game->name);
    }
}
