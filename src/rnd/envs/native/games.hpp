// What a game's score, lives and end are in RAM, and how a new game is started.
#pragma once

#include <string_view>
#include <vector>

#include "cartridge.hpp"
#include "machine.hpp"

namespace rnd::atari {

// The eighteen joystick actions, in ale-py's order.
// clang-format off
enum Action : u8 {
    NOOP, FIRE, UP, RIGHT, LEFT, DOWN, UPRIGHT, UPLEFT, DOWNRIGHT, DOWNLEFT,
    UPFIRE, RIGHTFIRE, LEFTFIRE, DOWNFIRE, UPRIGHTFIRE, UPLEFTFIRE, DOWNRIGHTFIRE, DOWNLEFTFIRE, kActions,
};
// clang-format on

struct Progress {
    i32 score;
    i32 lives;
    i32 reward;  // of the last frame
    i32 game_over;
};

// RAM is named by the address at which the processor sees it: 0x80 to 0xFF.

// A byte of the score: what each of its two decimal digits is worth.
struct Digits {
    u8 address;
    i32 low, high;
    bool blanks = false;  // a digit A is a blank on the screen, and worth nothing
};

// A byte whose field is the number of lives, less `plus`. Address 0: the game does not count any.
struct Lives {
    u8 address, mask, shift, plus;
};

struct Condition {
    enum Test : u8 { kIs, kIsNot, kAtLeast };
    u8 address, mask;
    Test test;
    u8 value;
};

struct Rules {
    i32 start_score, start_lives;
    std::vector<Digits> score;
    Lives lives;
    std::vector<std::vector<Condition>> over;  // the game has ended when all of one of these hold
    // What the fields above cannot express, executed after them; null in most games.
    void (*also)(const u8* ram, Progress&) = nullptr;
};

struct Game {
    const char* name;
    Scheme scheme;
    bool has_modes;  // ale-py holds the reset switch longer in games with several modes
    std::vector<u8> minimal_actions;
    std::vector<u8> start_actions;  // one per frame, after the console's reset switch
    Rules rules;
};

Progress start_progress(const Rules& rules);
// After every frame.
void update_progress(const Rules& rules, const u8* ram, Progress& progress);

// Null when the name is unknown.
const Game* find_game(std::string_view name);
const std::vector<Game>& all_games();

}  // namespace rnd::atari
