// The Python face of the batch.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <optional>

#include "batch.hpp"
#include "recording.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace rnd::atari;

namespace {

template <typename T, typename... Shape>
using Array = nb::ndarray<T, nb::numpy, nb::c_contig, nb::device::cpu, Shape...>;
using Frames = Array<u8, nb::shape<-1, 84, 84>>;
using FramesOverTime = Array<u8, nb::shape<-1, -1, 84, 84>>;
using Frame = Array<u8, nb::shape<84, 84>>;
using Screen = Array<const u8, nb::shape<kScreenHeight, kScreenWidth>>;
using RamRows = Array<u8, nb::shape<-1, 128>>;
using Seeds = Array<const u64, nb::shape<-1>>;
template <typename T>
using Vector = Array<T, nb::shape<-1>>;
template <typename T>
using OverTime = Array<T, nb::shape<-1, -1>>;
using Any = nb::ndarray<nb::numpy, nb::c_contig, nb::device::cpu, nb::ndim<1>>;

const Game& known(const std::string& name) {
    const Game* game = find_game(name);
    if (!game) throw std::invalid_argument("the native core does not know the game " + name);
    return *game;
}

class PyBatch {
    template <typename A>
    auto rows(const A& array, const char* name) const {
        if (array.shape(0) != static_cast<std::size_t>(batch_.size()))
            throw std::invalid_argument(std::string(name) + " must have one row for each of the " + std::to_string(batch_.size()) +
                                        " environments");
        return array.data();
    }

    u8* flags(const Any& array, const char* name) const {
        const bool one_byte = array.dtype() == nb::dtype<u8>() || array.dtype() == nb::dtype<bool>();
        if (!one_byte) throw std::invalid_argument(std::string(name) + " must be uint8 or bool");
        return static_cast<u8*>(const_cast<void*>(static_cast<const void*>(rows(array, name))));
    }

    std::vector<i64> group_actions(const Any& array, int first, int count) const {
        const void* data = rows(array, "actions");
        if (first < 0 || count < 0 || first > batch_.size() - count) throw std::invalid_argument("the group is not in the batch");
        if (array.dtype() == nb::dtype<i64>()) {
            const i64* at = static_cast<const i64*>(data) + first;
            return std::vector<i64>(at, at + count);
        }
        if (array.dtype() == nb::dtype<i32>()) {
            const i32* at = static_cast<const i32*>(data) + first;
            return std::vector<i64>(at, at + count);
        }
        throw std::invalid_argument("actions must be int32 or int64");
    }

public:
    PyBatch(nb::bytes rom, const std::string& game, const Seeds& seeds, int threads, int frame_skip, double sticky, int max_episode_frames,
            bool full_action_set, const std::string& simd, bool autoreset)
        : batch_(static_cast<const u8*>(rom.data()), rom.size(), known(game), std::vector<u64>(seeds.data(), seeds.data() + seeds.shape(0)),
                 Options{threads, frame_skip, sticky, max_episode_frames, full_action_set, autoreset, simd}) {}

    Batch& batch() { return batch_; }

    void reset(const Frames& frames, const RamRows& ram, const Vector<i32>& lives, int first, std::optional<int> count) {
        StepArrays out;
        out.frames = rows(frames, "frames");
        out.ram = rows(ram, "ram");
        out.lives = rows(lives, "lives");
        const int n = count.value_or(batch_.size() - first);
        nb::gil_scoped_release released;
        batch_.reset(out, first, n);
    }

    template <bool kAsync>
    void step(const Any& actions, const Frames& frames, const Vector<float>& rewards, const Any& terminated, const Any& truncated,
              const RamRows& ram, const Vector<i32>& lives, const RamRows& final_ram, int first, std::optional<int> count) {
        StepArrays arrays;
        arrays.frames = rows(frames, "frames");
        arrays.rewards = rows(rewards, "rewards");
        arrays.terminated = flags(terminated, "terminated");
        arrays.truncated = flags(truncated, "truncated");
        arrays.ram = rows(ram, "ram");
        arrays.lives = rows(lives, "lives");
        arrays.final_ram = rows(final_ram, "final_ram");
        const int n = count.value_or(batch_.size() - first);
        const std::vector<i64> chosen = group_actions(actions, first, n);
        arrays.actions = chosen.data();
        nb::gil_scoped_release released;
        if constexpr (kAsync)
            batch_.step_async(arrays, first, n);
        else
            batch_.step(arrays, first, n);
    }

    void play(const OverTime<const i64>& actions, const FramesOverTime& frames, const OverTime<float>& rewards, const Any& terminated,
              const Any& truncated, const RamRows& ram, const Vector<i32>& lives, const RamRows& final_ram) {
        const std::size_t steps = actions.shape(0), envs = static_cast<std::size_t>(batch_.size());
        auto over_time = [&](const auto& array) { return array.shape(0) == steps && array.shape(1) == envs; };
        if (!over_time(actions) || !over_time(frames) || !over_time(rewards))
            throw std::invalid_argument("actions, frames and rewards must have the same steps, and one column for each environment");
        StepArrays arrays;
        arrays.actions = actions.data();
        arrays.frames = frames.data();
        arrays.rewards = rewards.data();
        arrays.terminated = flags(terminated, "terminated");
        arrays.truncated = flags(truncated, "truncated");
        arrays.ram = rows(ram, "ram");
        arrays.lives = rows(lives, "lives");
        arrays.final_ram = rows(final_ram, "final_ram");
        nb::gil_scoped_release released;
        batch_.play(arrays, static_cast<int>(steps));
    }

private:
    Batch batch_;
};

nb::object copied(const u8* data, std::initializer_list<std::size_t> shape) {
    std::size_t size = 1;
    for (std::size_t extent : shape) size *= extent;
    u8* copy = new u8[size];
    std::memcpy(copy, data, size);
    nb::capsule owner(copy, [](void* p) noexcept { delete[] static_cast<u8*>(p); });
    return nb::cast(nb::ndarray<nb::numpy, u8>(copy, shape, owner));
}

}  // namespace

NB_MODULE(_core, module) {
    module.doc() = "Atari 2600 environments in C++.";
    module.def("known_games", [] {
        nb::list names;
        for (const Game& game : all_games()) names.append(game.name);
        return nb::tuple(names);
    });

    static const Engine& engine = choose_engine("auto");
    module.def(
        "shrink",
        [](const Screen& newest, const Screen& other, const Frame& frame) {
            engine.shrink(newest.data(), other.data(), frame.data(), kAllGroups);
        },
        "newest"_a, "other"_a, "frame"_a, "84 x 84 of the pixelwise maximum of two grey screens, as cv2.resize(..., INTER_AREA) makes it.");

    module.attr("sources") = RND_SOURCES;
    module.attr("simd") = engine.name;
    module.def(
        "record_reached",
        [](nb::bytes rom, const std::string& game, int frames, u64 seed) {
            std::vector<u8> reached;
            {
                nb::gil_scoped_release released;
                reached = record_reached(static_cast<const u8*>(rom.data()), rom.size(), known(game), frames, seed);
            }
            return nb::bytes(reached.data(), reached.size());
        },
        "rom"_a, "game"_a, "frames"_a, "seed"_a);
    module.def(
        "scheme",
        [](const std::string& game) {
            static constexpr const char* kNames[] = {"k4K", "kF8", "kF6", "kE0"};
            return kNames[static_cast<int>(known(game).scheme)];
        },
        "game"_a);

    const char* no_count = "count";
    nb::class_<PyBatch>(module, "AtariBatch")
        .def(nb::init<nb::bytes, const std::string&, const Seeds&, int, int, double, int, bool, const std::string&, bool>(), "rom"_a,
             "game"_a, "seeds"_a, nb::kw_only(), "threads"_a, "frame_skip"_a = 4, "sticky"_a = 0.25, "max_episode_frames"_a = 18'000,
             "full_action_set"_a = false, "simd"_a = "auto", "autoreset"_a = true)
        .def_prop_ro("num_envs", [](PyBatch& self) { return self.batch().size(); })
        .def_prop_ro("num_actions", [](PyBatch& self) { return self.batch().action_count(); })
        .def_prop_ro("threads", [](PyBatch& self) { return self.batch().threads(); })
        .def_prop_ro("simd", [](PyBatch& self) { return self.batch().simd(); })
        .def(
            "translate", [](PyBatch& self, const std::string& path) { self.batch().translate(path.c_str()); }, "path"_a)
        .def("reset", &PyBatch::reset, "frames"_a, "ram"_a, "lives"_a, "first"_a = 0, nb::arg(no_count) = nb::none())
        .def("step", &PyBatch::step<false>, "actions"_a, "frames"_a, "rewards"_a, "terminated"_a, "truncated"_a, "ram"_a, "lives"_a,
             "final_ram"_a, "first"_a = 0, nb::arg(no_count) = nb::none())
        .def("step_async", &PyBatch::step<true>, "actions"_a, "frames"_a, "rewards"_a, "terminated"_a, "truncated"_a, "ram"_a, "lives"_a,
             "final_ram"_a, "first"_a = 0, nb::arg(no_count) = nb::none())
        .def("play", &PyBatch::play, "actions"_a, "frames"_a, "rewards"_a, "terminated"_a, "truncated"_a, "ram"_a, "lives"_a, "final_ram"_a)
        .def(
            "wait", [](PyBatch& self, int first, bool spin) { self.batch().wait(first, spin); }, "first"_a = -1, "spin"_a = false,
            nb::call_guard<nb::gil_scoped_release>())
        .def(
            "screen", [](PyBatch& self, int i) { return copied(self.batch().screen(i), {kScreenHeight, kScreenWidth}); }, "i"_a)
        .def(
            "ram",
            [](PyBatch& self, int i) {
                self.batch().screen(i);
                return copied(self.batch().ram_of(i), {128});
            },
            "i"_a)
        .def(
            "lives", [](PyBatch& self, int i) { return self.batch().progress(i).lives; }, "i"_a)
        .def(
            "game_over", [](PyBatch& self, int i) { return self.batch().progress(i).game_over != 0; }, "i"_a)
        .def(
            "save",
            [](PyBatch& self, int i) {
                const std::vector<u8> blob = self.batch().save(i);
                return nb::bytes(blob.data(), blob.size());
            },
            "i"_a)
        .def(
            "load", [](PyBatch& self, int i, nb::bytes data) { self.batch().load(i, static_cast<const u8*>(data.data()), data.size()); },
            "i"_a, "data"_a)
        .def(
            "set_ram", [](PyBatch& self, int i, int address, int value) { self.batch().set_ram(i, address, value); }, "i"_a, "address"_a,
            "value"_a)
        .def(
            "raw_act", [](PyBatch& self, int i, int action) { return self.batch().raw_act(i, action); }, "i"_a, "ale_action"_a)
        .def("raw_reset", [](PyBatch& self, int i) { self.batch().raw_reset(i); }, "i"_a);
}
