// Included by one source file for each target, with RND_TARGET naming its namespace.
#include "engine.hpp"
#include "frame.hpp"
#include "observe.hpp"
