; Runs chunks of a kernel-dispatch packet, and completes the packet after the last of them.

; The chunk that is reached with %left chunks still to be taken, itself included.
define internal void @run_from_end(ptr %queue, i64 %packet, i64 %left, i32 %worker) nounwind {
  %slot = call ptr @slot_of(ptr %queue, i64 %packet)
  %chunks.at = getelementptr i8, ptr %slot, i64 $slot_chunks
  %chunks = load i64, ptr %chunks.at
  %chunk = sub i64 %chunks, %left
  call void @run(ptr %queue, i64 %packet, i64 %chunk, i32 %worker)
  ret void
}

define internal void @run(ptr %queue, i64 %packet, i64 %chunk, i32 %worker) nounwind {
entry:
  %slot = call ptr @slot_of(ptr %queue, i64 %packet)
  %at = call ptr @packet_at(ptr %queue, i64 %packet)
  %chunks.at = getelementptr i8, ptr %slot, i64 $slot_chunks
  %chunks = load i64, ptr %chunks.at
  %pieces.at = getelementptr i8, ptr %slot, i64 $slot_pieces
  %pieces = load i64, ptr %pieces.at
  %total.at = getelementptr i8, ptr %slot, i64 $slot_workgroups
  %total = load i64, ptr %total.at
  ; The chunk's round hands out a part of what earlier rounds left: see `cut`.
  %round = udiv i64 %chunk, %pieces
  %begun = mul i64 %round, %pieces
  %place = sub i64 %chunk, %begun
  %left = lshr i64 %total, %round
  %next.round = add i64 %round, 1
  %next.begun = add i64 %begun, %pieces
  %is.last.round = icmp eq i64 %next.begun, %chunks
  %half = lshr i64 %total, %next.round
  %left.after = select i1 %is.last.round, i64 0, i64 %half
  %width = sub i64 %left, %left.after
  %before.round = sub i64 %total, %left
  %next.place = add i64 %place, 1
  %scaled = mul i64 %width, %place
  %next.scaled = mul i64 %width, %next.place
  %from = udiv i64 %scaled, %pieces
  %to = udiv i64 %next.scaled, %pieces
  %first = add i64 %before.round, %from
  %count = sub i64 %to, %from
  %kernel.at = getelementptr i8, ptr %at, i64 $dispatch_kernel_object
  %kernel = load ptr, ptr %kernel.at
  %kernarg.at = getelementptr i8, ptr %at, i64 $dispatch_kernarg_address
  %kernarg = load ptr, ptr %kernarg.at
  call void %kernel(ptr %kernarg, i64 %first, i64 %count, i32 %worker)
  %start.at = getelementptr i8, ptr %slot, i64 $slot_start
  %start = load i64, ptr %start.at
  %unfinished.at = getelementptr i8, ptr %slot, i64 $slot_unfinished
  %unfinished = atomicrmw sub ptr %unfinished.at, i64 1 acq_rel, align 8
  %is.last = icmp eq i64 %unfinished, 1
  br i1 %is.last, label %finish, label %done

finish:
  call void @complete(ptr %queue, ptr %at, i64 %start, i64 1)
  br label %done

done:
  ret void
}

; Ends the packet at %at: its times, its slot, its signal. %counted is 1 if it counts as in flight.
define internal void @complete(ptr %queue, ptr %at, i64 %start, i64 %counted) nounwind {
entry:
  %signal.at = getelementptr i8, ptr %at, i64 $dispatch_completion_signal
  %signal = load ptr, ptr %signal.at
  %silent = icmp eq ptr %signal, null
  br i1 %silent, label %release, label %stamp

stamp:
  %end = call i64 @now()
  %start.at = getelementptr i8, ptr %signal, i64 $signal_start
  %end.at = getelementptr i8, ptr %signal, i64 $signal_end
  store i64 %start, ptr %start.at
  store i64 %end, ptr %end.at
  br label %release

release:
  ; From here on the slot may be written again: nothing of the packet is read below.
  store atomic i16 $header_invalid, ptr %at release, align 2
  %in.flight.at = getelementptr i8, ptr %queue, i64 $queue_in_flight
  %in.flight = atomicrmw sub ptr %in.flight.at, i64 %counted acq_rel, align 8
  br i1 %silent, label %done, label %count.down

count.down:
  call void @count_down(ptr %signal)
  br label %done

done:
  ret void
}

define internal ptr @slot_of(ptr %queue, i64 %packet) alwaysinline nounwind {
  %mask.at = getelementptr i8, ptr %queue, i64 $queue_mask
  %mask = load i64, ptr %mask.at
  %slots.at = getelementptr i8, ptr %queue, i64 $queue_slots
  %slots = load ptr, ptr %slots.at
  %index = and i64 %packet, %mask
  %offset = mul i64 %index, $slot_bytes
  %slot = getelementptr i8, ptr %slots, i64 %offset
  ret ptr %slot
}

define internal ptr @packet_at(ptr %queue, i64 %packet) alwaysinline nounwind {
  %mask.at = getelementptr i8, ptr %queue, i64 $queue_mask
  %mask = load i64, ptr %mask.at
  %ring.at = getelementptr i8, ptr %queue, i64 $queue_ring
  %ring = load ptr, ptr %ring.at
  %index = and i64 %packet, %mask
  %offset = mul i64 %index, $packet_bytes
  %at = getelementptr i8, ptr %ring, i64 %offset
  ret ptr %at
}

declare i64 @llvm.umin.i64(i64, i64)
