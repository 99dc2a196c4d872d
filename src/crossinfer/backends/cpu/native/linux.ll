; Linux: futex(2), clock_gettime(2), sched_yield(2), through libc.

declare i64 @syscall(i64, ...)
declare i32 @clock_gettime(i32, ptr)
declare i32 @sched_yield()

; Sleeps while the word at %at is %expected, at most %timeout ns (negative: no limit). May return
; early.
define internal void @wait_on(ptr %at, i32 %expected, i64 %timeout) nounwind {
  %time = alloca { i64, i64 }
  %seconds = sdiv i64 %timeout, 1000000000
  %nanoseconds = srem i64 %timeout, 1000000000
  %nanoseconds.at = getelementptr { i64, i64 }, ptr %time, i32 0, i32 1
  store i64 %seconds, ptr %time
  store i64 %nanoseconds, ptr %nanoseconds.at
  %forever = icmp slt i64 %timeout, 0
  %limit = select i1 %forever, ptr null, ptr %time
  ; FUTEX_WAIT | FUTEX_PRIVATE_FLAG
  %result = call i64 (i64, ...) @syscall(i64 $sys_futex, ptr %at, i64 128, i32 %expected,
                                         ptr %limit, i64 0, i64 0)
  ret void
}

define internal void @wake(ptr %at, i32 %count) nounwind {
  ; FUTEX_WAKE | FUTEX_PRIVATE_FLAG
  %result = call i64 (i64, ...) @syscall(i64 $sys_futex, ptr %at, i64 129, i32 %count,
                                         i64 0, i64 0, i64 0)
  ret void
}

define internal i64 @now() nounwind {
  %time = alloca { i64, i64 }
  ; CLOCK_MONOTONIC
  %result = call i32 @clock_gettime(i32 1, ptr %time)
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
