#include "batch.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <stdexcept>

#include "saving.hpp"

namespace rnd::atari {

namespace {

constexpr std::chrono::microseconds kLinger{50};
constexpr std::chrono::milliseconds kSpin{2};  // many times the duration of a step; a longer wait sleeps

}  // namespace

Batch::Batch(const u8* rom, std::size_t rom_size, const Game& game, const std::vector<u64>& seeds, const Options& options)
    : options_(options), emulator_{choose_engine(options.simd), game, make_rom(rom, rom_size, game.scheme)}, observed_(seeds.size()) {
    if (seeds.empty()) throw std::invalid_argument("at least one seed is needed");
    if (options.threads < 1) throw std::invalid_argument("threads must be at least 1");
    if (options.frame_skip < 1) throw std::invalid_argument("frame_skip must be at least 1");
    if (!(options.sticky >= 0.0 && options.sticky <= 1.0)) throw std::invalid_argument("sticky must lie in [0, 1]");
    if (options.max_episode_frames < 1) throw std::invalid_argument("max_episode_frames must be at least 1");
    if (options.full_action_set)
        for (u8 action = 0; action < kActions; ++action) actions_.push_back(action);
    else
        actions_ = game.minimal_actions;

    environments_.assign(seeds.size(), start_with(power_on_timer(0)).environment);
    for (std::size_t i = 0; i < seeds.size(); ++i) environments_[i].generator = seeds[i];
    for (int i = 0; i < options.threads; ++i) pool_.emplace_back([this] { work(); });
}

Batch::~Batch() {
    {
        std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    work_ready_.notify_all();
    for (std::thread& thread : pool_) thread.join();
}

void Batch::translate(const char* path) {
    auto refuse = [&](const std::string& why) { throw std::invalid_argument(std::string("the translated game ") + path + ": " + why); };
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) refuse(dlerror());
    const auto* translation = static_cast<const Translation*>(dlsym(library, kTranslationSymbol));
    if (!translation) refuse("it is not one");
    if (std::strncmp(translation->sources, RND_SOURCES, sizeof translation->sources) != 0 ||
        translation->machine_bytes != sizeof(Machine) || translation->rom_bytes != sizeof(Rom))
        refuse("it was made for another version of the core");
    emulator_.translated.store(translation->run_frame, std::memory_order_release);
}

// ---- one environment ----

const Batch::Start& Batch::start_with(u8 timer) {
    std::lock_guard lock(starts_mutex_);
    std::unique_ptr<Start>& start = starts_[timer];
    if (!start) {
        start = std::make_unique<Start>();
        auto other = std::make_unique<Start>();
        std::memset(static_cast<void*>(start.get()), 0, sizeof(Start));
        std::memset(static_cast<void*>(other.get()), 0, sizeof(Start));
        // Two start-ups from opposite RAMs show which bytes are kept, and whether they matter.
        u8 opposite[128];
        for (int i = 0; i < 128; ++i) opposite[i] = static_cast<u8>(~kPowerOnRam[i]);
        Environment& env = start->environment;
        Environment& env2 = other->environment;
        start_environment(env, emulator_, timer, kPowerOnRam);
        start_environment(env2, emulator_, timer, opposite);
        for (int i = 0; i < 128; ++i) {
            start->kept[i] = env.machine.riot.ram[i] == kPowerOnRam[i] && env2.machine.riot.ram[i] == opposite[i];
            if (start->kept[i]) env2.machine.riot.ram[i] = kPowerOnRam[i];
        }
        start->copyable = std::memcmp(&env, &env2, sizeof env) == 0;
        const u8* screen = env.screen[env.newest];
        emulator_.engine.observe(screen, screen, start->frame, kAllGroups);
    }
    return *start;
}

void Batch::reset_one(int i, u8* frame) {
    Environment& env = environments_[i];
    observed_[i].changed_rows = kAllGroups;
    const u64 generator = env.generator;
    const u32 power_ons = env.power_ons + 1;
    const u8 timer = power_on_timer(power_ons);
    const Start& start = start_with(timer);
    u8 ram[128];
    std::memcpy(ram, env.machine.riot.ram, sizeof ram);
    if (start.copyable) {
        env = start.environment;
        for (int i = 0; i < 128; ++i)
            if (start.kept[i]) env.machine.riot.ram[i] = ram[i];
        if (frame) std::memcpy(frame, start.frame, kObservationBytes);
    } else {
        start_environment(env, emulator_, timer, ram);
        const u8* screen = env.screen[env.newest];
        if (frame) emulator_.engine.observe(screen, screen, frame, kAllGroups);
    }
    env.generator = generator;
    env.power_ons = power_ons;
}

void Batch::write_state(const Environment& env, int i, const StepArrays& out) const {
    std::memcpy(out.ram + std::size_t{128} * i, env.machine.riot.ram, 128);
    out.lives[i] = env.progress.lives;
}

// Returns false, too early, when a frame shows rows of a frame before it that was not drawn.
bool Batch::play_step(int i, u8 action, bool draw_all, StepResult& result) {
    Environment& env = environments_[i];
    const int skip = options_.frame_skip;
    u64& changed_rows = observed_[i].changed_rows;
    result.reward = 0;
    result.over = result.limit = false;
    for (int frame = 0; frame < skip && !result.over && !result.limit; ++frame) {
        const bool repeat = draw_uniform(env.generator) < options_.sticky;
        const bool continues = !env.machine.frame_done;
        if (continues) std::memcpy(result.before, env.screen[env.newest], kScreenBytes);
        // Without a reset at the end, the last two frames of a step that ends early will be seen too.
        const bool draw = draw_all || frame >= skip - 2 || !options_.autoreset;
        const bool whole = play_frame(env, emulator_, repeat ? env.executed : action, draw, changed_rows);
        if (!whole && !draw_all) return false;
        result.reward += static_cast<float>(env.progress.reward);
        result.over = env.progress.game_over;
        result.limit = env.episode_frames >= options_.max_episode_frames;
        result.other = continues ? result.before : env.screen[env.newest ^ 1];
        if (continues) changed_rows = kAllGroups;
    }
    return true;
}

void Batch::step_one(int i, i64 action, const StepArrays& arrays) {
    Environment& env = environments_[i];
    StepResult result;
    u8 before[offsetof(Environment, screen)];
    std::memcpy(before, static_cast<const void*>(&env), sizeof before);
    if (!play_step(i, actions_[action], !env.machine.frame_done, result)) {
        std::memcpy(static_cast<void*>(&env), before, sizeof before);
        play_step(i, actions_[action], true, result);
    }
    arrays.rewards[i] = result.reward;
    arrays.terminated[i] = result.over;
    arrays.truncated[i] = result.limit && !result.over;
    const bool ended = result.over || result.limit;
    if (ended) std::memcpy(arrays.final_ram + std::size_t{128} * i, env.machine.riot.ram, 128);
    u8* frame = arrays.frames + std::size_t{kObservationBytes} * i;
    if (ended && options_.autoreset) {
        reset_one(i, frame);
    } else {
        const u8* newest = env.screen[env.newest];
        Observed& observed = observed_[i];
        // Of single frames every other one is on the same screen: what changed since the last observation is not known.
        const bool single = options_.frame_skip == 1;
        emulator_.engine.observe(newest, single ? newest : result.other, observed.frame, single ? kAllGroups : observed.changed_rows);
        observed.changed_rows = result.other == result.before ? kAllGroups : 0;
        std::memcpy(frame, observed.frame, kObservationBytes);
    }
    write_state(env, i, arrays);
}

// ---- groups ----

const Environment& Batch::environment(int i) const {
    if (i < 0 || i >= size()) throw std::out_of_range("there is no environment " + std::to_string(i));
    return environments_[i];
}

void Batch::check_group(int first, int count) const {
    if (first < 0 || count < 0 || first > size() - count)
        throw std::invalid_argument("environments [" + std::to_string(first) + ", " + std::to_string(first + i64{count}) +
                                    ") are not in [0, " + std::to_string(size()) + ")");
}

void Batch::reset(const StepArrays& out, int first, int count) {
    check_group(first, count);
    for (int i = first; i < first + count; ++i) {
        reset_one(i, out.frames + std::size_t{kObservationBytes} * i);
        write_state(environments_[i], i, out);
    }
}

std::shared_ptr<Batch::Job> Batch::make_job(const StepArrays& arrays, int first, int count, int steps) const {
    check_group(first, count);
    auto job = std::make_shared<Job>();
    job->arrays = arrays;
    job->first = first;
    job->count = count;
    job->steps = steps;
    job->unfinished = count;
    job->actions.assign(arrays.actions, arrays.actions + std::size_t(count) * steps);
    for (i64 action : job->actions)
        if (action < 0 || action >= action_count())
            throw std::invalid_argument("action " + std::to_string(action) + " is not in [0, " + std::to_string(action_count()) + ")");
    return job;
}

void Batch::step(const StepArrays& arrays, int first, int count) { run(make_job(arrays, first, count)); }

void Batch::play(const StepArrays& arrays, int steps) { run(make_job(arrays, 0, size(), steps)); }

// The caller steps too, beside one thread of the pool less: it need not be woken at either end.
void Batch::run(const std::shared_ptr<Job>& job) {
    if (job->count == 0) return;
    job->most = options_.threads - 1;
    post(job);
    std::unique_lock lock(mutex_);
    while (job->next < job->count) step_next(*job, lock);
    work_done_.wait(lock, [&] { return job->unfinished == 0; });
    std::erase(running_, job);
}

void Batch::step_async(const StepArrays& arrays, int first, int count) {
    const auto job = make_job(arrays, first, count);
    if (count == 0) return;
    job->most = options_.threads;
    post(job);
}

void Batch::post(const std::shared_ptr<Job>& job) {
    {
        std::lock_guard lock(mutex_);
        for (const auto& other : running_)
            if (job->first < other->first + other->count && other->first < job->first + job->count)
                throw std::invalid_argument("the group is still stepping: wait for it first");
        running_.push_back(job);
        ++posted_;
    }
    for (int i = 0; i < job->most; ++i) work_ready_.notify_one();
}

void Batch::wait(int first, bool spin) {
    std::unique_lock lock(mutex_);
    auto waited_for = [&](const std::shared_ptr<Job>& job) { return first < 0 || job->first == first; };
    auto under_way = [&] {
        return std::find_if(running_.begin(), running_.end(), [&](const auto& job) { return waited_for(job) && job->unfinished; });
    };
    while (spin && under_way() != running_.end()) {
        const std::shared_ptr<Job> job = *under_way();
        if (job->next < job->count) {
            step_next(*job, lock);
            continue;
        }
        const auto end = std::chrono::steady_clock::now() + kSpin;
        lock.unlock();
        while (job->unfinished && std::chrono::steady_clock::now() < end) {}
        lock.lock();
        if (job->unfinished) break;
    }
    work_done_.wait(lock, [&] { return under_way() == running_.end(); });
    std::erase_if(running_, waited_for);
}

std::shared_ptr<Batch::Job> Batch::job_to_join() const {
    for (const auto& job : running_)
        if (job->next < job->count && job->working < job->most) return job;
    return nullptr;
}

// Takes one row. The lock is held before and after, not while the environment steps.
void Batch::step_next(Job& job, std::unique_lock<std::mutex>& lock) {
    const int row = job.next++;
    lock.unlock();
    StepArrays arrays = job.arrays;
    for (int step = 0; step < job.steps; ++step) {
        step_one(job.first + row, job.actions[std::size_t(step) * job.count + row], arrays);
        arrays.frames += std::size_t{kObservationBytes} * size();
        arrays.rewards += size();
    }
    lock.lock();
    if (--job.unfinished == 0) work_done_.notify_all();
}

void Batch::work() {
    std::unique_lock lock(mutex_);
    while (true) {
        std::shared_ptr<Job> job;
        work_ready_.wait(lock, [&] { return stopping_ || (job = job_to_join()); });
        if (stopping_) return;
        ++job->working;
        while (job->next < job->count) step_next(*job, lock);
        --job->working;
        if (!job_to_join()) linger(lock);
    }
}

// The next step often starts within microseconds, and waking a thread takes tens of them.
void Batch::linger(std::unique_lock<std::mutex>& lock) {
    const u32 before = posted_;
    lock.unlock();
    const auto end = std::chrono::steady_clock::now() + kLinger;
    while (posted_ == before && std::chrono::steady_clock::now() < end) {}
    lock.lock();
}

// ---- looking in, saving ----

const u8* Batch::screen(int i) const {
    const Environment& env = environment(i);
    return env.screen[env.newest];
}

std::vector<u8> Batch::save(int i) const { return save_environment(environment(i), emulator_.game.name); }

void Batch::load(int i, const u8* data, std::size_t size) {
    environment(i);
    std::memcpy(static_cast<void*>(&environments_[i]), load_environment(data, size, emulator_.game, emulator_.rom).get(),
                sizeof(Environment));
    observed_[i].changed_rows = kAllGroups;
}

void Batch::set_ram(int i, int address, int value) {
    environment(i);
    if (address < 0 || address > 127 || value < 0 || value > 255)
        throw std::invalid_argument("RAM has addresses 0 to 127 and values 0 to 255");
    environments_[i].machine.riot.ram[address] = static_cast<u8>(value);
}

float Batch::raw_act(int i, int action) {
    environment(i);
    if (action < 0 || action >= kActions) throw std::invalid_argument("an action is a number from 0 to 17");
    Environment& env = environments_[i];
    play_frame(env, emulator_, static_cast<u8>(action), true, observed_[i].changed_rows);
    return static_cast<float>(env.progress.reward);
}

void Batch::raw_reset(int i) {
    environment(i);
    reset_one(i, nullptr);
}

}  // namespace rnd::atari
