; macOS: __ulock_wait (what the system's own C++ library waits with), clock_gettime, sched_yield.

declare i32 @__ulock_wait(i32, ptr, i64, i32)
declare i32 @__ulock_wake(i32, ptr, i64)
declare i32 @clock_gettime(i32, ptr)
declare i32 @sched_yield()

; Sleeps while the word at %at is %expected, at most %timeout ns (negative: no limit). May return
; early.
define internal void @wait_on(ptr %at, i32 %expected, i64 %timeout) nounwind {
  %wide = zext i32 %expected to i64
  %forever = icmp slt i64 %timeout, 0
  ; At least 1, since 0 is no limit to the system.
  %up = add i64 %timeout, 1000
  %microseconds = sdiv i64 %up, 1000
  %longest = call i64 @llvm.smin.i64(i64 %microseconds, i64 1000000000)
  %limit.64 = select i1 %forever, i64 0, i64 %longest
  %limit = trunc i64 %limit.64 to i32
  ; UL_COMPARE_AND_WAIT | ULF_NO_ERRNO
  %result = call i32 @__ulock_wait(i32 16777217, ptr %at, i64 %wide, i32 %limit)
  ret void
}

; Wakes all: waking a number of threads takes as many calls.
define internal void @wake(ptr %at, i32 %count) nounwind {
  ; UL_COMPARE_AND_WAIT | ULF_WAKE_ALL | ULF_NO_ERRNO
  %result = call i32 @__ulock_wake(i32 16777473, ptr %at, i64 0)
  ret void
}

define internal i64 @now() nounwind {
  %time = alloca { i64, i64 }
  ; CLOCK_UPTIME_RAW
  %result = call i32 @clock_gettime(i32 8, ptr %time)
  %seconds = load i64, ptr %time
  %nanoseconds.at = getelementptr { i64, i64 }, ptr %time, i32 0, i32 1
  %nanoseconds = load i64, ptr %nanoseconds.at
  %scaled = mul i64 %seconds, 1000000000
  %sum = add i64 %scaled, %nanoseconds
  ret i64 %sum
}

define internal void @give_way() nounwind {
  %result = call i32 @sched_yield()
  ret void
}

declare i64 @llvm.smin.i64(i64, i64)
