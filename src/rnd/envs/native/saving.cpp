#include "saving.hpp"

#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <string>

namespace rnd::atari {

namespace {

constexpr char kMagic[8] = {'R', 'N', 'D', 'A', 'T', 'A', 'R', 'I'};
constexpr u32 kVersion = 2;

struct SaveHeader {
    char magic[8];
    u32 version;
    u32 bytes;
    char game[32];
    u64 checksum;  // FNV-1a of the environment's bytes
};

u64 checksum(const u8* data, std::size_t size) {
    u64 hash = 0xCBF29CE484222325u;
    for (std::size_t i = 0; i < size; ++i) hash = (hash ^ data[i]) * 0x100000001B3u;
    return hash;
}

// Version 1 had fields that nothing read. What lies between them moves as it is.
constexpr std::size_t kBytesOfVersion1 = 67'904;
struct Span {
    std::size_t from, to, bytes;
};
#define AT(field) offsetof(Environment, field)
constexpr Span kFromVersion1[] = {
    {0, AT(machine.tia.mask), sizeof(Tia::mask)},
    {193, AT(machine.tia.VBLANK), AT(machine.tia.line_is_collided) + 1 - AT(machine.tia.VBLANK)},
    {238, AT(machine.tia.collision), sizeof(Tia::collision) + sizeof(Tia::shadow)},
    {368, AT(machine.tia.line), AT(machine.tia.vsync_clock) + sizeof(Tia::vsync_clock) - AT(machine.tia.line)},
    {416, AT(machine.riot), AT(machine.riot.swcha_out) + 1 - AT(machine.riot)},
    {576, AT(machine.cpu), sizeof(Cpu)},
    {588, AT(machine.cartridge), sizeof(Cartridge::image) + sizeof(Cartridge::slice)},
    {594, AT(machine.fire), AT(machine.frame_done) + 1 - AT(machine.fire)},
    {600, AT(machine.cycle), sizeof(Machine::cycle)},
    {608, AT(machine.frame_cycle), sizeof(Machine::frame_cycle)},
    {640, AT(progress), sizeof(Progress)},
    {656, AT(generator), AT(newest) + 1 - AT(generator)},
    {674, AT(screen), sizeof(Environment::screen)},
};
#undef AT

}  // namespace

std::vector<u8> save_environment(const Environment& env, std::string_view game) {
    SaveHeader header{};
    std::memcpy(header.magic, kMagic, sizeof kMagic);
    header.version = kVersion;
    header.bytes = sizeof(Environment);
    game.copy(header.game, sizeof header.game - 1);
    header.checksum = checksum(reinterpret_cast<const u8*>(&env), sizeof env);
    std::vector<u8> blob(sizeof header + sizeof env);
    std::memcpy(blob.data(), &header, sizeof header);
    std::memcpy(blob.data() + sizeof header, &env, sizeof env);
    return blob;
}

std::unique_ptr<Environment> load_environment(const u8* data, std::size_t size, const Game& game, const Rom& rom) {
    auto refuse = [](const std::string& why) { throw std::invalid_argument(why); };
    SaveHeader header;
    if (size < sizeof header) refuse("not a saved environment: too short");
    std::memcpy(&header, data, sizeof header);
    if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) refuse("not a saved environment");
    if (header.version < 1 || header.version > kVersion)
        refuse("a saved environment of version " + std::to_string(header.version) + ", this is version " + std::to_string(kVersion));
    header.game[sizeof header.game - 1] = 0;
    if (std::string_view(header.game) != game.name) refuse(std::string("a saved environment of ") + header.game + ", this is " + game.name);
    const std::size_t bytes = header.version == 1 ? kBytesOfVersion1 : sizeof(Environment);
    if (header.bytes != bytes || size != sizeof header + bytes) refuse("a saved environment of the wrong length");
    const u8* body = data + sizeof header;
    if (header.checksum != checksum(body, bytes)) refuse("a damaged saved environment: its checksum is wrong");
    auto loaded = std::make_unique<Environment>();
    u8* to = reinterpret_cast<u8*>(loaded.get());
    std::memset(to, 0, sizeof(Environment));
    if (header.version == 1)
        for (const Span& span : kFromVersion1) std::memcpy(to + span.to, body + span.from, span.bytes);
    else
        std::memcpy(to, body, sizeof(Environment));
    // The checksum is no proof: whoever writes a file can make it fit.
    if (const char* field = field_out_of_range(*loaded, rom))
        refuse(std::string("a damaged saved environment: its ") + field + " is out of range");
    return loaded;
}

}  // namespace rnd::atari
