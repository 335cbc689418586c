// What tiles.cc needs of the scheduler.
#pragma once

#include "device.h"

namespace heron {

// Notes what a lane does with a fragment, and fails if another lane of its warp did otherwise. True for the lane that
// does it for all.
bool alike(const char* what, const void* pointer, unsigned stride, int line);

void* open_tile(size_t bytes);
void close_tile(size_t bytes);

}  // namespace heron
