; Windows 8 and later: WaitOnAddress, QueryPerformanceCounter, SwitchToThread.

declare i32 @WaitOnAddress(ptr, ptr, i64, i32)
declare void @WakeByAddressSingle(ptr)
declare void @WakeByAddressAll(ptr)
declare i32 @QueryPerformanceCounter(ptr)
declare i32 @QueryPerformanceFrequency(ptr)
declare i32 @SwitchToThread()

; Sleeps while the word at %at is %expected, at most %timeout ns (negative: no limit). May return
; early.
define internal void @wait_on(ptr %at, i32 %expected, i64 %timeout) nounwind {
  %compare = alloca i32
  store i32 %expected, ptr %compare
  %forever = icmp slt i64 %timeout, 0
  %up = add i64 %timeout, 999999
  %milliseconds = sdiv i64 %up, 1000000
  ; INFINITE is all ones.
  %limit.64 = select i1 %forever, i64 4294967295, i64 %milliseconds
  %limit = trunc i64 %limit.64 to i32
  %result = call i32 @WaitOnAddress(ptr %at, ptr %compare, i64 4, i32 %limit)
  ret void
}

define internal void @wake(ptr %at, i32 %count) nounwind {
entry:
  %one = icmp eq i32 %count, 1
  br i1 %one, label %single, label %all

single:
  call void @WakeByAddressSingle(ptr %at)
  ret void

all:
  call void @WakeByAddressAll(ptr %at)
  ret void
}

define internal i64 @now() nounwind {
  %ticks.at = alloca i64
  %frequency.at = alloca i64
  %counted = call i32 @QueryPerformanceCounter(ptr %ticks.at)
  %asked = call i32 @QueryPerformanceFrequency(ptr %frequency.at)
  %ticks = load i64, ptr %ticks.at
  %frequency = load i64, ptr %frequency.at
  %seconds = udiv i64 %ticks, %frequency
  %rest = urem i64 %ticks, %frequency
  %seconds.ns = mul i64 %seconds, 1000000000
  %rest.scaled = mul i64 %rest, 1000000000
  %rest.ns = udiv i64 %rest.scaled, %frequency
  %sum = add i64 %seconds.ns, %rest.ns
  ret i64 %sum
}

define internal void @give_way() nounwind {
  %result = call i32 @SwitchToThread()
  ret void
}
