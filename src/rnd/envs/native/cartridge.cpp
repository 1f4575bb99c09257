#include "cartridge.hpp"

#include <cstring>
#include <stdexcept>
#include <string>

namespace rnd::atari {

namespace {

void close_image(u8* image) { std::memcpy(image + kImageBytes, image, kImageStride - kImageBytes); }

}  // namespace

Rom make_rom(const u8* data, std::size_t size, Scheme scheme) {
    Rom rom{};
    rom.scheme = scheme;
    rom.first_hotspot = 0xFFFF;
    auto need = [&](bool fits) {
        if (!fits) throw std::invalid_argument("a ROM of " + std::to_string(size) + " bytes does not fit its bank-switching scheme");
    };
    auto banks_of_4k = [&](std::size_t banks) {
        rom.images.resize(banks * kImageStride);
        for (std::size_t bank = 0; bank < banks; ++bank) {
            u8* image = rom.images.data() + bank * kImageStride;
            std::memcpy(image, data + bank * kImageBytes, kImageBytes);
            close_image(image);
        }
    };
    switch (scheme) {
        case Scheme::k4K: {
            need(size == 2048 || size == 4096);
            rom.images.resize(kImageStride);
            for (int at = 0; at < kImageBytes; at += static_cast<int>(size)) std::memcpy(rom.images.data() + at, data, size);
            close_image(rom.images.data());
            break;
        }
        case Scheme::kF8:
            need(size == 8192);
            banks_of_4k(2);
            rom.first_hotspot = 0xFF8;
            rom.start_image = 1;
            break;
        case Scheme::kF6:
            need(size == 16384);
            banks_of_4k(4);
            rom.first_hotspot = 0xFF6;
            rom.start_image = 0;
            break;
        case Scheme::kE0: {
            // Three switchable 1K slices and a fixed one: 8 x 8 x 8 views.
            need(size == 8192);
            rom.images.resize(512 * std::size_t{kImageStride});
            for (std::size_t view = 0; view < 512; ++view) {
                u8* image = rom.images.data() + view * kImageStride;
                const std::size_t slices[4] = {view & 7, view >> 3 & 7, view >> 6, 7};
                for (int i = 0; i < 4; ++i) std::memcpy(image + 1024 * i, data + 1024 * slices[i], 1024);
                close_image(image);
            }
            rom.first_hotspot = 0xFE0;
            const u8 start[3] = {4, 5, 6};
            std::memcpy(rom.start_slice, start, sizeof start);
            rom.start_image = static_cast<u16>(4 | 5 << 3 | 6 << 6);
            break;
        }
    }
    return rom;
}

Rom make_rom(const u8* data, std::size_t size) {
    switch (size) {
        case 2048:
        case 4096: return make_rom(data, size, Scheme::k4K);
        case 8192: return make_rom(data, size, Scheme::kF8);
        case 16384: return make_rom(data, size, Scheme::kF6);
        default: throw std::invalid_argument("a ROM of " + std::to_string(size) + " bytes is not supported (2K, 4K, 8K and 16K are)");
    }
}

}  // namespace rnd::atari
