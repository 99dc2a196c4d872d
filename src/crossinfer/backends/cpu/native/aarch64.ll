; AArch64: what a loop does that waits for another core. ISB, since YIELD costs next to nothing.

declare void @llvm.aarch64.isb(i32)

define internal void @pause() alwaysinline nounwind {
  call void @llvm.aarch64.isb(i32 15)
  ret void
}
