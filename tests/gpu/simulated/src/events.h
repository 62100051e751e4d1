// Looks up events by handle.
#pragma once

#include "timeline.h"

namespace sim {

Event* event_of(void* handle);  // null for an unknown handle

}  // namespace sim
