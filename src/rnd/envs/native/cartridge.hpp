// ROM cartridges: every view that the bank-switching hardware can give of a ROM is laid out as a flat 4K image.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "machine.hpp"

namespace rnd::atari {

enum class Scheme : u8 { k4K, kF8, kF6, kE0 };

constexpr int kImageBytes = 4096;
constexpr int kImageStride = kImageBytes + 64;  // the start is repeated: an operand may lie past the end

struct Rom {
    Scheme scheme;
    u16 first_hotspot;  // offset in the image; accesses at or above it may switch banks
    u16 start_image;
    u8 start_slice[3];
    std::vector<u8> images;

    const u8* image(u16 index) const { return images.data() + static_cast<std::size_t>(index) * kImageStride; }
};

// Throws std::invalid_argument when the size fits no scheme.
Rom make_rom(const u8* data, std::size_t size, Scheme scheme);
// 2K and 4K are unbanked; 8K is F8 unless specified otherwise; 16K is F6.
Rom make_rom(const u8* data, std::size_t size);

// Any access to a hot spot switches, whatever is read or written. Returns true when the view changed.
inline bool cartridge_access(const Rom& rom, Cartridge& cartridge, u32 offset) {
    u16 image = cartridge.image;
    switch (rom.scheme) {
        case Scheme::kF8:
            if (offset == 0xFF8 || offset == 0xFF9) image = static_cast<u16>(offset - 0xFF8);
            break;
        case Scheme::kF6:
            if (offset >= 0xFF6 && offset <= 0xFF9) image = static_cast<u16>(offset - 0xFF6);
            break;
        case Scheme::kE0:
            if (offset >= 0xFE0 && offset <= 0xFF7) {
                cartridge.slice[(offset - 0xFE0) >> 3] = offset & 7;
                image = static_cast<u16>(cartridge.slice[0] | cartridge.slice[1] << 3 | cartridge.slice[2] << 6);
            }
            break;
        case Scheme::k4K: break;
    }
    const bool changed = image != cartridge.image;
    cartridge.image = image;
    return changed;
}

// Where an instruction at `pc` lies among all that a ROM can show, whatever the other slices show: below kPlaces.
constexpr u32 kPlaces = 32 * 1024;
inline u32 place(Scheme scheme, const Cartridge& cartridge, u32 pc) {
    if (scheme != Scheme::kE0) return cartridge.image * 4096u + (pc & 0xFFF);
    const u32 window = pc >> 10 & 3;
    return (window * 8u + (window == 3 ? 7u : cartridge.slice[window])) * 1024u + (pc & 0x3FF);
}

// What a recording notes of a place: an instruction was executed there, it was jumped to, and the upper bits of its address.
enum Reached : u8 { kExecuted = 1, kEntered = 2 };
constexpr int kMirrorShift = 5;
// Of several addresses the first one counts.
inline void note_reached(u8& place, u8 how, u32 pc) { place = static_cast<u8>(how | (place ? place : pc >> 13 << kMirrorShift)); }

}  // namespace rnd::atari
