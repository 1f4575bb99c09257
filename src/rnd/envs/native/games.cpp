#include "games.hpp"

#include <algorithm>

namespace rnd::atari {

namespace {

int at(const u8* ram, u8 address) { return ram[address & 0x7F]; }

// Two decimal digits, the lower one worth `unit`.
Digits pair(u8 address, i32 unit) { return {address, unit, 10 * unit}; }

// Six decimal digits in three bytes, the lowest pair first.
std::vector<Digits> six(u8 low, u8 middle, u8 high, i32 unit = 1) {
    return {pair(low, unit), pair(middle, 100 * unit), pair(high, 10'000 * unit)};
}

Condition is(u8 address, u8 value, u8 mask = 0xFF) { return {address, mask, Condition::kIs, value}; }
Condition is_not(u8 address, u8 value, u8 mask = 0xFF) { return {address, mask, Condition::kIsNot, value}; }
Condition at_least(u8 address, u8 value, u8 mask = 0xFF) { return {address, mask, Condition::kAtLeast, value}; }

bool holds(const Condition& c, const u8* ram) {
    const int value = at(ram, c.address) & c.mask;
    switch (c.test) {
        case Condition::kIs: return value == c.value;
        case Condition::kIsNot: return value != c.value;
        default: return value >= c.value;
    }
}

i32 worth(const Digits& digits, int byte) {
    int low = byte & 15, high = byte >> 4;
    if (digits.blanks && low == 10) low = 0;
    if (digits.blanks && high == 10) high = 0;
    return digits.low * low + digits.high * high;
}

constexpr Lives kNoLives = {0, 0, 0, 0};

std::vector<u8> all_actions() {
    std::vector<u8> actions(kActions);
    for (u8 i = 0; i < kActions; ++i) actions[i] = i;
    return actions;
}

// The upper nibble counts down A, 8, 0.
void pitfall_lives(const u8* ram, Progress& p) {
    const int lives = at(ram, 0x80) >> 4;
    p.lives = p.game_over ? 0 : lives == 0xA ? 3 : lives == 8 ? 2 : 1;
}

// The score starts again from zero.
template <i32 kTop>
void wraps_at(const u8*, Progress& p) {
    if (p.reward < 0) p.reward += kTop;
}

// ale-py gives nothing for a score that falls.
void never_negative(const u8*, Progress& p) { p.reward = std::max(p.reward, 0); }

// The counter falls back to zero when the time is up.
void freeway_reward(const u8*, Progress& p) { p.reward = p.reward < 0 ? 0 : p.reward > 1 ? 1 : p.reward; }

}  // namespace

Progress start_progress(const Rules& rules) { return {rules.start_score, rules.start_lives, 0, 0}; }

void update_progress(const Rules& rules, const u8* ram, Progress& p) {
    i32 score = 0;
    for (const Digits& digits : rules.score) score += worth(digits, at(ram, digits.address));
    p.reward = score - p.score;
    p.score = score;
    p.game_over = 0;
    for (const std::vector<Condition>& all : rules.over)
        p.game_over |= std::all_of(all.begin(), all.end(), [ram](const Condition& one) { return holds(one, ram); });
    const Lives& lives = rules.lives;
    if (lives.address) p.lives = p.game_over ? 0 : ((at(ram, lives.address) & lives.mask) >> lives.shift) + lives.plus;
    if (rules.also) rules.also(ram, p);
}

// Found by writing into ale-py's RAM and reading the score, lives and end that it then returns, and proven by comparison
// (`rnd bench envs --exactness`). A game whose rules or screen differ anywhere is not here: ale-py plays it.
const std::vector<Game>& all_games() {
    using enum Scheme;
    static const std::vector<Game> games = {
        // ---- the games of the paper ----
        // clang-format off
        {"montezuma_revenge", kE0, false, all_actions(), {},
         {0, 6, six(0x95, 0x94, 0x93), {0xBA, 7, 0, 1}, {{is(0xBA, 0), is(0xFE, 0x60)}}}},
        {"gravitar", kF8, true, all_actions(), std::vector<u8>(16, FIRE),
         {0, 6, six(0x89, 0x88, 0x87), {0x84, 0xFF, 0, 1}, {{is(0x81, 1)}}}},
        {"pitfall", k4K, false, all_actions(), {UP},
         {2000, 3, six(0xD7, 0xD6, 0xD5), kNoLives, {{is(0x80, 0, 0xF0), is_not(0x9E, 0)}}, pitfall_lives}},
        {"private_eye", kF8, true, all_actions(), {UP}, {1000, 0, six(0xCA, 0xC9, 0xC8), kNoLives, {{is_not(0xC2, 0)}}}},
        {"solaris", kF6, false, all_actions(), {}, {0, 3, six(0xDC, 0xDD, 0xDE, 10), {0xD9, 15, 0, 0}, {{is(0xD9, 0, 15)}}}},
        {"venture", k4K, false, all_actions(), {},
         {0, 4, {pair(0xC8, 100), pair(0xC7, 10'000)}, {0xC6, 0xFF, 0, 1}, {{is(0xC6, 0), is(0xCD, 0xFF), at_least(0xBF, 0x80)}}}},
        {"freeway", k4K, true, {NOOP, UP, DOWN}, {}, {0, 0, {pair(0xE7, 1)}, kNoLives, {{is(0x96, 1)}}, freeway_reward}},
        // ---- others ----
        {"assault", k4K, false, {NOOP, FIRE, UP, RIGHT, LEFT, RIGHTFIRE, LEFTFIRE}, {},
         {0, 4, six(0x82, 0x81, 0x80), {0xE5, 0xFF, 0, 0}, {{is(0xE5, 0)}}}},
        {"asterix", kF8, false, {NOOP, UP, RIGHT, LEFT, DOWN, UPRIGHT, UPLEFT, DOWNRIGHT, DOWNLEFT}, {FIRE},
         {0, 3, six(0xE0, 0xDF, 0xDE), {0xD3, 0xF, 0, 0}, {{is(0xC7, 1), is(0xD3, 1, 0xF)}}}},
        {"atlantis", k4K, true, {NOOP, FIRE, RIGHTFIRE, LEFTFIRE}, {},
         {0, 6, six(0xA2, 0xA3, 0xA1, 100), {0xF1, 0xFF, 0, 0}, {{is(0xF1, 0xFF)}}}},
        {"atlantis2", k4K, false, {NOOP, FIRE, RIGHTFIRE, LEFTFIRE}, {},
         {0, 6, six(0xA1, 0xA2, 0xA3), {0xF1, 0xFF, 0, 0}, {{is(0xF1, 0xFF)}}}},
        {"bank_heist", k4K, true, all_actions(), {},
         {0, 4, six(0xDA, 0xD9, 0xD8), {0xD5, 0xFF, 0, 0}, {{is(0xCE, 1), is(0xD5, 0)}}}},
        {"berzerk", k4K, false, all_actions(), std::vector<u8>(24, NOOP),
         {0, 3, six(0xDF, 0xDE, 0xDD), {0xDA, 0xFF, 0, 1}, {{is(0xDA, 0xFF)}}}},
        {"bowling", k4K, true, {NOOP, FIRE, UP, DOWN, UPFIRE, DOWNFIRE}, {},
         {0, 0, {pair(0xA1, 1), pair(0xA6, 100)}, kNoLives, {{at_least(0xA4, 0x11)}}}},
        {"centipede", kF8, true, all_actions(), {},
         {0, 3, six(0xF6, 0xF5, 0xF4), {0xED, 0x70, 4, 1}, {{is(0xA6, 0x40, 0x40)}}, never_negative}},
        {"chopper_command", k4K, true, all_actions(), {},
         {0, 3, {pair(0xEE, 100), pair(0xEC, 10'000)}, {0xE4, 0xF, 0, 0}, {{is(0xE4, 0, 0xF)}}}},
        {"crazy_climber", kF8, true, {NOOP, UP, RIGHT, LEFT, DOWN, UPRIGHT, UPLEFT, DOWNRIGHT, DOWNLEFT}, {},
         {0, 5, {Digits{0x82, 100, 1'000}, Digits{0x83, 1'000, 0}, Digits{0x84, 10'000, 100'000}, Digits{0x85, 100'000, 0}}, {0xAA, 0xFF, 0, 0}, {{is(0xAA, 0)}}, never_negative}},
        {"defender", k4K, true, all_actions(), {},
         {0, 3, {Digits{0x9C, 1, 0, true}, Digits{0x9D, 10, 0, true}, Digits{0x9E, 100, 0, true}, Digits{0x9F, 1'000, 0, true}, Digits{0xA0, 10'000, 0, true}, Digits{0xA1, 100'000, 0, true}}, {0xC2, 0xFF, 0, 0}, {{is(0xC2, 0)}}}},
        {"demon_attack", k4K, true, {NOOP, FIRE, RIGHT, LEFT, RIGHTFIRE, LEFTFIRE}, {},
         {0, 1, six(0x85, 0x83, 0x81), {0xF2, 0xFF, 0, 1}, {{is(0xF1, 0xBD), is(0xF2, 0)}}}},
        {"donkey_kong", k4K, false, all_actions(), {},
         {0, 2, {pair(0x88, 100), pair(0x87, 10'000)}, {0xA3, 0xFF, 0, 0}, {{is(0x8B, 0x1F), is(0xA3, 0)}}}},
        {"fishing_derby", k4K, false, all_actions(), {},
         {0, 0, {pair(0xBE, -1), pair(0xBD, 1)}, kNoLives, {{is(0xBD, 0x99)}, {is(0xBE, 0x99)}}}},
        {"frogger", k4K, true, {NOOP, UP, RIGHT, LEFT, DOWN}, {},
         {0, 4, {pair(0xCE, 1), pair(0xCC, 100)}, {0xD0, 0xFF, 0, 0}, {{is(0xD0, 0xFF)}}}},
        {"frostbite", k4K, true, all_actions(), {},
         {0, 4, six(0xCA, 0xC9, 0xC8), {0xCC, 0xF, 0, 1}, {{is(0xF1, 0x80, 0x80), is(0xCC, 0, 0xF)}}}},
        {"galaxian", kF8, true, {NOOP, FIRE, RIGHT, LEFT, RIGHTFIRE, LEFTFIRE}, {},
         {0, 4, six(0xAE, 0xAD, 0xAC), {0xB9, 0xFF, 0, 1}, {{is(0xBF, 0x80, 0x80)}}, wraps_at<1'000'000>}},
        {"hero", kF8, true, all_actions(), {},
         {0, 4, six(0xB9, 0xB8, 0xB7), {0xB3, 0xFF, 0, 0}, {{is(0xB3, 0)}}}},
        {"jamesbond", kE0, false, all_actions(), {},
         {0, 6, six(0xDC, 0xDD, 0xDE), {0x86, 0xF, 0, 1}, {{is(0x8C, 0x68), is(0x86, 0, 0xF)}}}},
        {"kangaroo", kF8, false, all_actions(), {},
         {0, 3, {pair(0xA8, 100), pair(0xA7, 10'000)}, {0xAD, 0x7, 0, 1}, {{is(0xAD, 0xFF)}}}},
        {"koolaid", k4K, false, {NOOP, UP, RIGHT, LEFT, DOWN, UPRIGHT, UPLEFT, DOWNRIGHT, DOWNLEFT}, {},
         {0, 0, {pair(0x81, 100), pair(0x80, 10'000)}, kNoLives, {{is(0xD1, 0x80)}}}},
        {"kung_fu_master", kF8, false, {NOOP, UP, RIGHT, LEFT, DOWN, DOWNRIGHT, DOWNLEFT, RIGHTFIRE, LEFTFIRE, DOWNFIRE, UPRIGHTFIRE, UPLEFTFIRE, DOWNRIGHTFIRE, DOWNLEFTFIRE}, {},
         {0, 4, six(0x9A, 0x99, 0x98), {0x9D, 0x7, 0, 1}, {{is(0x9D, 0xFF)}}}},
        {"mario_bros", kF8, false, all_actions(), std::vector<u8>(17, FIRE),
         {0, 5, {pair(0x8A, 100), pair(0x89, 10'000)}, {0x87, 0xFF, 0, 0}, {{is(0x87, 0)}}}},
        {"phoenix", kF8, false, {NOOP, FIRE, RIGHT, LEFT, DOWN, RIGHTFIRE, LEFTFIRE, DOWNFIRE}, {},
         {0, 5, {Digits{0xC7, 0, 10}, pair(0xC8, 100), pair(0xC9, 10'000)}, {0xCB, 0x7, 0, 0}, {{is(0xCC, 0x80)}}}},
        {"road_runner", kF6, false, all_actions(), {},
         {0, 3, {Digits{0xC9, 100, 0, true}, Digits{0xCA, 1'000, 0, true}, Digits{0xCB, 10'000, 0, true}, Digits{0xCC, 100'000, 0, true}}, {0xC4, 7, 0, 1},
          {{is(0xC4, 0, 7), is_not(0xB9, 0)}, {is(0xC4, 0, 7), is_not(0xBD, 0)}}}},
        {"seaquest", k4K, false, all_actions(), {},
         {0, 4, six(0xBA, 0xB9, 0xB8), {0xBB, 0xFF, 0, 1}, {{is_not(0xA3, 0)}}}},
        {"space_invaders", k4K, true, {NOOP, FIRE, RIGHT, LEFT, RIGHTFIRE, LEFTFIRE}, {},
         {0, 3, {pair(0xE8, 1), pair(0xE6, 100)}, {0xC9, 0xFF, 0, 0}, {{is(0xC9, 0)}, {is(0x98, 0x80, 0x80)}}, wraps_at<10'000>}},
        {"zaxxon", kF8, true, all_actions(), {},
         {0, 5, {pair(0xE9, 100), pair(0xE8, 10'000)}, {0xEA, 0x7, 0, 0}, {{is(0xEA, 0, 0x7)}}}},
        // clang-format on
    };
    return games;
}

const Game* find_game(std::string_view name) {
    for (const Game& game : all_games())
        if (name == game.name) return &game;
    return nullptr;
}

}  // namespace rnd::atari
