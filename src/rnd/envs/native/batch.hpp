// N environments of one game, stepped by a pool of threads into the caller's memory.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "environment.hpp"
#include "pipeline.hpp"

namespace rnd::atari {

struct Options {
    int threads = 1;
    int frame_skip = 4;
    double sticky = 0.25;
    int max_episode_frames = 18'000;
    bool full_action_set = false;
    bool autoreset = true;
    std::string simd = "auto";
};

// The caller's full-size arrays; only the rows of the group are read or written.
struct StepArrays {
    const i64* actions = nullptr;
    u8* frames = nullptr;  // N x 84 x 84
    float* rewards = nullptr;
    u8* terminated = nullptr;
    u8* truncated = nullptr;
    u8* ram = nullptr;  // N x 128
    i32* lives = nullptr;
    u8* final_ram = nullptr;  // N x 128: written where the episode ends, before the reset
};

class Batch {
public:
    Batch(const u8* rom, std::size_t rom_size, const Game& game, const std::vector<u64>& seeds, const Options& options);
    ~Batch();
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;

    int size() const { return static_cast<int>(environments_.size()); }
    int action_count() const { return static_cast<int>(actions_.size()); }
    int threads() const { return options_.threads; }
    const char* simd() const { return emulator_.engine.name; }
    // From now on the game's frames are played by the shared object at `path`, also those of steps under way. It stays loaded.
    // Throws std::invalid_argument when it cannot be loaded or was made for another core.
    void translate(const char* path);

    void reset(const StepArrays& out, int first, int count);
    void step(const StepArrays& arrays, int first, int count);
    // Plays `steps` steps of all environments, each through its own without waiting for the others. `actions`, `frames` and
    // `rewards` have a first axis of steps; the other arrays hold the last step's.
    void play(const StepArrays& arrays, int steps);
    // Starts the group in the pool and returns. The actions are copied; the other arrays must outlive the wait.
    void step_async(const StepArrays& arrays, int first, int count);
    // Waits for the group that starts at `first`, or for all groups when it is negative. A caller with a core of its own may
    // spin: it steps environments of the group itself while there are any left, and resumes microseconds earlier.
    void wait(int first, bool spin = false);

    const u8* screen(int i) const;
    std::vector<u8> save(int i) const;
    void load(int i, const u8* data, std::size_t size);
    void set_ram(int i, int address, int value);
    u8 ram(int i, int address) const;
    float raw_act(int i, int action);
    void raw_reset(int i);
    const Progress& progress(int i) const { return environment(i).progress; }
    const u8* ram_of(int i) const { return environment(i).machine.riot.ram; }

private:
    struct Job {
        StepArrays arrays;
        std::vector<i64> actions;  // of the group, step by step, checked
        int first, count, steps;
        int most = 0;     // threads of the pool that may work on it at once
        int working = 0;  // and do
        int next = 0;     // the first row that no thread has taken
        std::atomic<int> unfinished = 0;
    };

    // A reset is a copy of a stored state, one for each value of the timer at power-on, made when first needed. RAM bytes
    // that the start-up never writes keep their value; where it reads RAM before writing it, it is played again.
    struct Start {
        Environment environment;
        u8 frame[kObservationBytes];
        bool kept[128];
        bool copyable;
    };

    // The last observation of an environment, and which groups of its rows are out of date. Not part of its state.
    struct Observed {
        u64 changed_rows = kAllGroups;
        u8 frame[kObservationBytes];
    };

    struct StepResult {
        float reward = 0;
        bool over = false, limit = false;
        const u8* other = nullptr;  // the screen beside the newest one
        u8 before[kScreenBytes];    // what a screen showed before a cut frame was continued on it
    };

    const Environment& environment(int i) const;
    const Start& start_with(u8 timer);
    void check_group(int first, int count) const;
    std::shared_ptr<Job> make_job(const StepArrays& arrays, int first, int count, int steps = 1) const;
    void run(const std::shared_ptr<Job>& job);
    void reset_one(int i, u8* frame);
    void step_one(int i, i64 action, const StepArrays& arrays);
    bool play_step(int i, u8 action, bool draw_all, StepResult& result);
    void write_state(const Environment& env, int i, const StepArrays& out) const;
    void post(const std::shared_ptr<Job>& job);
    std::shared_ptr<Job> job_to_join() const;
    void step_next(Job& job, std::unique_lock<std::mutex>& lock);
    void linger(std::unique_lock<std::mutex>& lock);
    void work();

    Options options_;
    Emulator emulator_;
    std::vector<u8> actions_;
    std::vector<Environment> environments_;
    std::vector<Observed> observed_;
    std::unique_ptr<Start> starts_[256];
    std::mutex starts_mutex_;

    std::vector<std::thread> pool_;
    std::mutex mutex_;
    std::condition_variable work_ready_, work_done_;
    std::deque<std::shared_ptr<Job>> running_;  // the first posted first
    std::atomic<u32> posted_ = 0;               // how many ever were
    bool stopping_ = false;
};

}  // namespace rnd::atari
