; x86-64: what a loop does that waits for another core.

declare void @llvm.x86.sse2.pause()

define internal void @pause() alwaysinline nounwind {
  call void @llvm.x86.sse2.pause()
  ret void
}
