; What the submitting side calls: wake workers, wait for a signal or for room, stop.

; Called after the doorbell was written.
define void @crossinfer_rung(ptr %queue) nounwind {
  %workers.at = getelementptr i8, ptr %queue, i64 $queue_workers
  %workers = load i64, ptr %workers.at
  call void @wake_workers(ptr %queue, i64 %workers)
  ret void
}

; Makes every worker return as soon as it has finished its chunk.
define void @crossinfer_stop(ptr %queue) nounwind {
  %stop.at = getelementptr i8, ptr %queue, i64 $queue_stop
  store atomic i32 1, ptr %stop.at release, align 4
  call void @crossinfer_rung(ptr %queue)
  ret void
}

define void @crossinfer_fence() nounwind {
  fence seq_cst
  ret void
}

; Waits until a signal is done. 1 if it is; 0 after the timeout, or earlier if the thread has a
; reason to look around, such as an interrupt. Nanoseconds.
define i32 @crossinfer_wait_signal(ptr %signal, i64 %timeout, i64 %spin) nounwind {
entry:
  %value.at = getelementptr i8, ptr %signal, i64 $signal_value
  %start = call i64 @now()
  br label %spin.on

spin.on:
  %value = load atomic i64, ptr %value.at acquire, align 8
  %done = icmp sle i64 %value, 0
  br i1 %done, label %yes, label %spin.time

spin.time:
  call void @pause()
  %time = call i64 @now()
  %spun = sub i64 %time, %start
  %tired = icmp ugt i64 %spun, %spin
  br i1 %tired, label %sleep, label %spin.on

sleep:
  %waiters.at = getelementptr i8, ptr %signal, i64 $signal_notify
  %before = atomicrmw add ptr %waiters.at, i32 1 seq_cst, align 4
  fence seq_cst
  %seen = load atomic i64, ptr %value.at acquire, align 8
  %seen.done = icmp sle i64 %seen, 0
  br i1 %seen.done, label %awake, label %wait

wait:
  %low = trunc i64 %seen to i32
  call void @wait_on(ptr %value.at, i32 %low, i64 %timeout)
  br label %awake

awake:
  %after = atomicrmw sub ptr %waiters.at, i32 1 seq_cst, align 4
  %last = load atomic i64, ptr %value.at acquire, align 8
  %last.done = icmp sle i64 %last, 0
  %answer = zext i1 %last.done to i32
  ret i32 %answer

yes:
  ret i32 1
}

; Counts a signal down and wakes whoever waits for it.
define internal void @count_down(ptr %signal) nounwind {
entry:
  %value.at = getelementptr i8, ptr %signal, i64 $signal_value
  %value = atomicrmw sub ptr %value.at, i64 1 seq_cst, align 8
  fence seq_cst
  %waiters.at = getelementptr i8, ptr %signal, i64 $signal_notify
  %waiters = load atomic i32, ptr %waiters.at monotonic, align 4
  %nobody = icmp eq i32 %waiters, 0
  br i1 %nobody, label %done, label %wake

wake:
  call void @wake(ptr %value.at, i32 %waiters)
  br label %done

done:
  ret void
}

; Waits until the read index has reached %index. 1 if it has, 0 as `crossinfer_wait_signal`. Only the
; submitter waits here, so what it wants is one number.
define i32 @crossinfer_wait_space(ptr %queue, i64 %index, i64 %timeout) nounwind {
entry:
  %read.at = getelementptr i8, ptr %queue, i64 $queue_read_index
  %waiters.at = getelementptr i8, ptr %queue, i64 $queue_space_waiters
  %wanted.at = getelementptr i8, ptr %queue, i64 $queue_space_wanted
  store atomic i64 %index, ptr %wanted.at monotonic, align 8
  %before = atomicrmw add ptr %waiters.at, i32 1 seq_cst, align 4
  fence seq_cst
  %read = load atomic i64, ptr %read.at acquire, align 8
  %ahead = sub i64 %read, %index
  %reached = icmp sge i64 %ahead, 0
  br i1 %reached, label %awake, label %wait

wait:
  %low = trunc i64 %read to i32
  call void @wait_on(ptr %read.at, i32 %low, i64 %timeout)
  br label %awake

awake:
  %after = atomicrmw sub ptr %waiters.at, i32 1 seq_cst, align 4
  %read.now = load atomic i64, ptr %read.at acquire, align 8
  %ahead.now = sub i64 %read.now, %index
  %reached.now = icmp sge i64 %ahead.now, 0
  %answer = zext i1 %reached.now to i32
  ret i32 %answer
}
