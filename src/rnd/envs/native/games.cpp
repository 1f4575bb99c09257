#include "games.hpp"

namespace rnd::atari {

namespace {

std::vector<u8> full_set() {
    std::vector<u8> actions(kActions);
    for (u8 i = 0; i < kActions; ++i) actions[i] = i;
    return actions;
}

// RAM by the address at which the processor sees it.
int at(const u8* ram, int address) { return ram[address & 0x7F]; }

int bcd(const u8* ram, int address) {
    const int byte = at(ram, address);
    return (byte >> 4) * 10 + (byte & 15);
}

// Six decimal digits, lowest pair first.
int bcd(const u8* ram, int low, int middle, int high) {
    return bcd(ram, low) + 100 * bcd(ram, middle) + 10000 * bcd(ram, high);
}

void set_score(Progress& p, int score) {
    p.reward = score - p.score;
    p.score = score;
}

void start_with_lives(Progress& p, int lives) { p = Progress{0, lives, 0, 0, {}}; }

namespace montezuma_revenge {
void start(const u8*, Progress& p) { start_with_lives(p, 6); }
void update(const u8* ram, Progress& p) {
    set_score(p, bcd(ram, 0x95, 0x94, 0x93));
    const int lives = at(ram, 0xBA);
    p.game_over = lives == 0 && at(ram, 0xFE) == 0x60;
    p.lives = p.game_over ? 0 : (lives & 7) + 1;
}
}  // namespace montezuma_revenge

namespace gravitar {
void start(const u8*, Progress& p) { start_with_lives(p, 6); }
void update(const u8* ram, Progress& p) {
    set_score(p, bcd(ram, 0x89, 0x88, 0x87));
    p.game_over = at(ram, 0x81) == 1;
    p.lives = p.game_over ? 0 : at(ram, 0x84) + 1;
}
}  // namespace gravitar

namespace pitfall {
void start(const u8*, Progress& p) {
    start_with_lives(p, 3);
    p.score = 2000;
}
void update(const u8* ram, Progress& p) {
    set_score(p, bcd(ram, 0xD7, 0xD6, 0xD5));
    const int lives = at(ram, 0x80) >> 4;
    p.game_over = lives == 0 && at(ram, 0x9E) != 0;
    p.lives = p.game_over ? 0 : lives == 0xA ? 3 : lives == 8 ? 2 : 1;
}
}  // namespace pitfall

namespace private_eye {
void start(const u8*, Progress& p) {
    start_with_lives(p, 0);
    p.score = 1000;
}
void update(const u8* ram, Progress& p) {
    set_score(p, bcd(ram, 0xCA, 0xC9, 0xC8));
    p.game_over = at(ram, 0xC2) != 0;
    p.lives = 0;
}
}  // namespace private_eye

namespace solaris {
void start(const u8*, Progress& p) { start_with_lives(p, 3); }
void update(const u8* ram, Progress& p) {
    set_score(p, 10 * bcd(ram, 0xDC, 0xDD, 0xDE));
    p.lives = at(ram, 0xD9) & 15;
    p.game_over = p.lives == 0;
}
}  // namespace solaris

namespace venture {
void start(const u8*, Progress& p) { start_with_lives(p, 4); }
void update(const u8* ram, Progress& p) {
    set_score(p, 100 * (bcd(ram, 0xC8) + 100 * bcd(ram, 0xC7)));
    const int lives = at(ram, 0xC6);
    p.game_over = lives == 0 && at(ram, 0xCD) == 0xFF && at(ram, 0xBF) >= 0x80;
    p.lives = p.game_over ? 0 : lives + 1;
}
}  // namespace venture

namespace freeway {
void start(const u8*, Progress& p) { start_with_lives(p, 0); }
void update(const u8* ram, Progress& p) {
    set_score(p, bcd(ram, 0xE7));
    p.reward = p.reward < 0 ? 0 : p.reward > 1 ? 1 : p.reward;
    p.game_over = at(ram, 0x96) == 1;
    p.lives = 0;
}
}  // namespace freeway

}  // namespace

const std::vector<Game>& all_games() {
#define RULES(game) game::start, game::update
    static const std::vector<Game> games = {
        {"montezuma_revenge", Scheme::kE0, false, full_set(), {}, RULES(montezuma_revenge)},
        {"gravitar", Scheme::kF8, true, full_set(), std::vector<u8>(16, FIRE), RULES(gravitar)},
        {"pitfall", Scheme::k4K, false, full_set(), {UP}, RULES(pitfall)},
        {"private_eye", Scheme::kF8, true, full_set(), {UP}, RULES(private_eye)},
        {"solaris", Scheme::kF6, false, full_set(), {}, RULES(solaris)},
        {"venture", Scheme::k4K, false, full_set(), {}, RULES(venture)},
        {"freeway", Scheme::k4K, true, {NOOP, UP, DOWN}, {}, RULES(freeway)},
    };
#undef RULES
    return games;
}

const Game* find_game(std::string_view name) {
    for (const Game& game : all_games())
        if (name == game.name) return &game;
    return nullptr;
}

}  // namespace rnd::atari
