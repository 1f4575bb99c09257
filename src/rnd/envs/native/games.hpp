// What a game's score, lives and end are in RAM, and how a new game is started.
#pragma once

#include <string_view>
#include <vector>

#include "cartridge.hpp"
#include "machine.hpp"

namespace rnd::atari {

// The eighteen joystick actions, in ale-py's order.
enum Action : u8 {
    NOOP, FIRE, UP, RIGHT, LEFT, DOWN, UPRIGHT, UPLEFT, DOWNRIGHT, DOWNLEFT,
    UPFIRE, RIGHTFIRE, LEFTFIRE, DOWNFIRE, UPRIGHTFIRE, UPLEFTFIRE, DOWNRIGHTFIRE, DOWNLEFTFIRE, kActions,
};

struct Progress {
    i32 score;
    i32 lives;
    i32 reward;  // of the last frame
    u8 game_over;
    u8 memory[3];  // what a game's rules must remember beside the score
};

struct Game {
    const char* name;
    Scheme scheme;
    bool has_modes;  // ale-py holds the reset switch longer in games with several modes
    std::vector<u8> minimal_actions;
    std::vector<u8> start_actions;  // one a frame, after the console's reset switch
    void (*start)(const u8* ram, Progress&);
    void (*update)(const u8* ram, Progress&);  // after every frame
};

// Null when the name is unknown.
const Game* find_game(std::string_view name);
const std::vector<Game>& all_games();

}  // namespace rnd::atari
