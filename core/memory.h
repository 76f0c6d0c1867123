// SPDX-License-Identifier: MIT
// When memory goes back to the system. With other C libraries than glibc, both functions do
// nothing.
#pragma once

namespace halfscope {

/// Keeps memory that was freed for what is allocated next. Call it at the start of main():
/// otherwise, large tensors get new pages of the system in every step, which must be cleared.
void keep_freed_memory() noexcept;

/// Gives back what is kept, for when much was freed that will not be needed again.
void give_back_memory() noexcept;

}  // namespace halfscope
