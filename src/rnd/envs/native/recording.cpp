#include "recording.hpp"

#include <cstring>
#include <utility>

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
constexpr int kKeptEvery = 300;  // frames of play between two states that trials begin with
constexpr int kTrialFrames = 3;  // a room is drawn at once; longer trials would be fewer
constexpr int kLongestFrame = kMaxLines + 2;

class Recorder {
public:
    Recorder(const Emulator& emulator, u64 seed) : emulator_(emulator), generator_(seed) {}

    // Plays at random, from one episode to the next.
    void play(int frames) {
        reached_places = reached.data();
        start_environment(*env_, emulator_, power_on_timer(0), kPowerOnRam);
        for (int done = 0, held = 0, action = 0; done < frames; ++done) {
            // Every other episode holds its actions for up to a second, so that it gets somewhere.
            if (held-- <= 0) {
                action = below(kActions);
                held = env_->power_ons % 2 ? below(60) : 0;
            }
            const int lines = frame(action);
            if (env_->machine.frame_done) is_usual_[lines] = true;
            if (done % kKeptEvery == 0) kept_.push_back(env_->machine);
            if (!env_->machine.frame_done || env_->progress.game_over || env_->episode_frames >= kEpisodeFrames) {
                const u32 power_ons = ++env_->power_ons;
                u8 ram[128];
                std::memcpy(ram, env_->machine.riot.ram, sizeof ram);
                start_environment(*env_, emulator_, power_on_timer(power_ons), ram);
            }
        }
    }

    // Changes a byte of memory of a state that was met, and plays on. That leads to rooms and objects that chance does not find,
    // and a good player does. What reaches something new is kept, and changed in turn.
    void try_changes(int frames) {
        std::vector<u8> trial(kPlaces);
        reached_places = trial.data();
        for (int done = 0; done < frames && !kept_.empty(); done += kTrialFrames) {
            std::memset(trial.data(), 0, trial.size());
            env_->machine = kept_[static_cast<std::size_t>(below(static_cast<int>(kept_.size())))];
            u8& cell = env_->machine.riot.ram[below(128)];
            // Most bytes that lead elsewhere count something, or are small numbers.
            const int how = below(4);
            cell = static_cast<u8>(how == 0 ? cell + 1 : how == 1 ? cell - 1 : how == 2 ? below(32) : below(256));
            if (plays_as_usual(below(kActions))) keep(trial);
        }
    }

    std::vector<u8> reached = std::vector<u8>(kPlaces);

private:
    int below(int n) { return static_cast<int>(draw_uniform(generator_) * n); }

    // Returns the frame's length in lines.
    int frame(int action) {
        u64 changed_rows = 0;
        const i64 start = env_->machine.frame_cycle;
        play_frame(*env_, emulator_, static_cast<u8>(action), false, changed_rows);
        const i64 lines = (env_->machine.frame_cycle - start) / kCyclesPerLine;
        return lines < kLongestFrame ? static_cast<int>(lines) : kLongestFrame - 1;
    }

    // False when the change made the program run wild: it misses the end of a frame, or draws one of another length.
    bool plays_as_usual(int action) {
        for (int i = 0; i < kTrialFrames; ++i) {
            const int lines = frame(action);
            if (!env_->machine.frame_done || !is_usual_[lines]) return false;
        }
        return true;
    }

    void keep(const std::vector<u8>& trial) {
        bool is_new = false;
        for (u32 place = 0; place < kPlaces; ++place) {
            is_new |= (trial[place] & ~reached[place] & kExecuted) != 0;
            reached[place] = reached[place] ? reached[place] | (trial[place] & (kExecuted | kEntered)) : trial[place];
        }
        if (is_new) kept_.push_back(env_->machine);
    }

    const Emulator& emulator_;
    u64 generator_;
    const std::unique_ptr<Environment> env_ = std::make_unique<Environment>();
    std::vector<Machine> kept_;
    bool is_usual_[kLongestFrame] = {};
};

}  // namespace

std::vector<u8> record_reached(const u8* rom, std::size_t rom_size, const Game& game, int frames, u64 seed) {
    const Emulator emulator{kRecordingEngine, game, make_rom(rom, rom_size, game.scheme)};
    Recorder recorder(emulator, seed);
    recorder.play(frames / 3);
    recorder.try_changes(frames - frames / 3);
    reached_places = nullptr;
    return std::move(recorder.reached);
}

}  // namespace rnd::atari
