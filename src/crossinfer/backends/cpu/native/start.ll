; Starts packets, in order, by one worker at a time (a lock that nobody waits for).
;
; A packet with the barrier bit starts once none is in flight. A barrier-AND packet that waits for
; its signals holds back everything behind it. All packets up to the doorbell must be there: an
; INVALID or unknown one is an error of the submitter, and the queue goes no further.

; Whether taking the lock is worth it: there are packets to start or slots to give back, and not
; merely a barrier that still waits.
define internal i1 @may_start(ptr %queue) nounwind {
  %next.at = getelementptr i8, ptr %queue, i64 $queue_next
  %next = load atomic i64, ptr %next.at monotonic, align 8
  %doorbell.at = getelementptr i8, ptr %queue, i64 $queue_doorbell
  %doorbell = load atomic i64, ptr %doorbell.at monotonic, align 8
  %end = add i64 %doorbell, 1
  %read.at = getelementptr i8, ptr %queue, i64 $queue_read_index
  %read = load atomic i64, ptr %read.at monotonic, align 8
  %barrier.at = getelementptr i8, ptr %queue, i64 $queue_at_barrier
  %barrier = load atomic i32, ptr %barrier.at monotonic, align 4
  %in.flight.at = getelementptr i8, ptr %queue, i64 $queue_in_flight
  %in.flight = load atomic i64, ptr %in.flight.at monotonic, align 8
  %any = icmp ne i64 %end, %next
  %kept = icmp ne i64 %read, %next
  %some = or i1 %any, %kept
  %not.barrier = icmp eq i32 %barrier, 0
  %drained = icmp eq i64 %in.flight, 0
  %free = or i1 %not.barrier, %drained
  %may = and i1 %some, %free
  ret i1 %may
}

; Starts the next packet. Gives its index, to run its chunk 0, or a negative code.
define internal i64 @start_next(ptr %queue) noinline nounwind {
entry:
  %lock.at = getelementptr i8, ptr %queue, i64 $queue_lock
  %held = load atomic i32, ptr %lock.at monotonic, align 4
  %is.held = icmp ne i32 %held, 0
  br i1 %is.held, label %busy, label %try

try:
  %was = atomicrmw xchg ptr %lock.at, i32 1 acquire, align 4
  %lost = icmp ne i32 %was, 0
  br i1 %lost, label %busy, label %locked

busy:
  ret i64 $code_busy

locked:
  %result = call i64 @start_locked(ptr %queue)
  store atomic i32 0, ptr %lock.at release, align 4
  ; A sleeper is woken outside of the lock, which it wants first of all.
  %started = icmp sge i64 %result, 0
  br i1 %started, label %share, label %done

share:
  %slot = call ptr @slot_of(ptr %queue, i64 %result)
  %chunks.at = getelementptr i8, ptr %slot, i64 $slot_chunks
  %chunks = load i64, ptr %chunks.at
  %others = sub i64 %chunks, 1
  %alone = icmp eq i64 %others, 0
  br i1 %alone, label %done, label %wake

wake:
  call void @wake_workers(ptr %queue, i64 %others)
  br label %done

done:
  ret i64 %result
}

define internal i64 @start_locked(ptr %queue) nounwind {
entry:
  %claim.at = getelementptr i8, ptr %queue, i64 $queue_claim
  %next.at = getelementptr i8, ptr %queue, i64 $queue_next
  %doorbell.at = getelementptr i8, ptr %queue, i64 $queue_doorbell
  %in.flight.at = getelementptr i8, ptr %queue, i64 $queue_in_flight
  %barrier.at = getelementptr i8, ptr %queue, i64 $queue_at_barrier
  %error.at = getelementptr i8, ptr %queue, i64 $queue_error
  %claim = load atomic i64, ptr %claim.at monotonic, align 8
  %open = call i1 @is_open(i64 %claim)
  br i1 %open, label %shared, label %look

shared:
  ret i64 $code_progress

look:
  %so.far = phi i64 [ $code_nothing, %entry ], [ $code_progress, %barrier.done ]
  call void @retire(ptr %queue)
  %next = load i64, ptr %next.at
  %doorbell = load atomic i64, ptr %doorbell.at acquire, align 8
  %ahead = sub i64 %doorbell, %next
  %error = load i32, ptr %error.at
  %none = icmp slt i64 %ahead, 0
  %failed = icmp ne i32 %error, 0
  %idle = or i1 %none, %failed
  br i1 %idle, label %nothing, label %read

nothing:
  ret i64 %so.far

read:
  %at = call ptr @packet_at(ptr %queue, i64 %next)
  %header = load atomic i16, ptr %at acquire, align 2
  %after = add i64 %next, 1
  %bit = and i16 %header, $header_barrier
  %no.bit = icmp eq i16 %bit, 0
  %in.flight = load atomic i64, ptr %in.flight.at acquire, align 8
  %drained = icmp eq i64 %in.flight, 0
  %may.start = or i1 %no.bit, %drained
  br i1 %may.start, label %start, label %barrier.waits

barrier.waits:
  store atomic i32 1, ptr %barrier.at monotonic, align 4
  ret i64 %so.far

start:
  store atomic i32 0, ptr %barrier.at monotonic, align 4
  %type = and i16 %header, 255
  switch i16 %type, label %wrong [
    i16 $type_dispatch, label %dispatch
    i16 $type_barrier_and, label %barrier
  ]

barrier:
  %clear = call i1 @signals_are_clear(ptr %at)
  br i1 %clear, label %barrier.done, label %barrier.blocked

barrier.blocked:
  ret i64 $code_blocked

barrier.done:
  %time = call i64 @now()
  store atomic i64 %after, ptr %next.at monotonic, align 8
  call void @complete(ptr %queue, ptr %at, i64 %time, i64 0)
  br label %look

dispatch:
  %kernel.at = getelementptr i8, ptr %at, i64 $dispatch_kernel_object
  %kernel = load ptr, ptr %kernel.at
  %total = call i64 @workgroups(ptr %at)
  %no.kernel = icmp eq ptr %kernel, null
  %no.grid = icmp eq i64 %total, 0
  %malformed = or i1 %no.kernel, %no.grid
  br i1 %malformed, label %wrong, label %publish

publish:
  %chunks = call i64 @cut(ptr %queue, ptr %at, i64 %next, i64 %total)
  %was.in.flight = atomicrmw add ptr %in.flight.at, i64 1 monotonic, align 8
  store atomic i64 %after, ptr %next.at monotonic, align 8
  %others = sub i64 %chunks, 1
  %count = add i64 %others, $claim_bias_64
  %index = shl i64 %next, 32
  %new.claim = or i64 %index, %count
  store atomic i64 %new.claim, ptr %claim.at release, align 8
  %result = and i64 %next, $index_mask
  ret i64 %result

wrong:
  %index.at = getelementptr i8, ptr %queue, i64 $queue_error_index
  store i64 %next, ptr %index.at
  %wide = zext i16 %header to i32
  %code = or i32 %wide, $error_flag
  store atomic i32 %code, ptr %error.at release, align 4
  ret i64 $code_nothing
}

; Whether all signals of a barrier-AND packet are at 0.
define internal i1 @signals_are_clear(ptr %at) nounwind {
entry:
  br label %each

each:
  %number = phi i64 [ 0, %entry ], [ %following, %clear ]
  %end = icmp eq i64 %number, $barrier_dependency_count
  br i1 %end, label %all, label %look

look:
  %offset = shl i64 %number, 3
  %place = add i64 %offset, $barrier_dependencies
  %signal.at = getelementptr i8, ptr %at, i64 %place
  %signal = load ptr, ptr %signal.at
  %absent = icmp eq ptr %signal, null
  br i1 %absent, label %clear, label %test

test:
  %value.at = getelementptr i8, ptr %signal, i64 $signal_value
  %value = load atomic i64, ptr %value.at acquire, align 8
  %zero = icmp eq i64 %value, 0
  br i1 %zero, label %clear, label %waits

clear:
  %following = add i64 %number, 1
  br label %each

all:
  ret i1 true

waits:
  ret i1 false
}

; The number of workgroups of a dispatch: of each dimension the work-items over the workgroup's size,
; rounded up. 0 if a size is.
define internal i64 @workgroups(ptr %at) nounwind {
entry:
  br label %each

each:
  %dimension = phi i64 [ 0, %entry ], [ %following, %multiply ]
  %product = phi i64 [ 1, %entry ], [ %larger, %multiply ]
  %end = icmp eq i64 %dimension, 3
  br i1 %end, label %done, label %look

look:
  %size.offset = shl i64 %dimension, 1
  %size.place = add i64 %size.offset, $dispatch_workgroup_size
  %size.at = getelementptr i8, ptr %at, i64 %size.place
  %size.16 = load i16, ptr %size.at
  %size = zext i16 %size.16 to i64
  %grid.offset = shl i64 %dimension, 2
  %grid.place = add i64 %grid.offset, $dispatch_grid_size
  %grid.at = getelementptr i8, ptr %at, i64 %grid.place
  %grid.32 = load i32, ptr %grid.at
  %grid = zext i32 %grid.32 to i64
  %empty = icmp eq i64 %size, 0
  br i1 %empty, label %none, label %multiply

multiply:
  %bumped = add i64 %grid, %size
  %up = sub i64 %bumped, 1
  %groups = udiv i64 %up, %size
  %larger = mul i64 %product, %groups
  %following = add i64 %dimension, 1
  br label %each

none:
  ret i64 0

done:
  ret i64 %product
}

; Cuts a packet's workgroups into chunks and fills its slot. Gives the number of chunks.
;
; They get smaller: of what is left, a round hands out half, a piece to each worker; the last round
; hands out the rest. Large pieces first, since memory is read fastest in few long runs, and small
; ones last, so that all workers end together (guided self-scheduling, Polychronopoulos and Kuck
; 1987). A worker alone gets everything at once.
define internal i64 @cut(ptr %queue, ptr %at, i64 %packet, i64 %total) nounwind {
entry:
  %workers.at = getelementptr i8, ptr %queue, i64 $queue_workers
  %workers = load i64, ptr %workers.at
  %pieces = call i64 @llvm.umin.i64(i64 %workers, i64 %total)
  %each.piece = udiv i64 %total, %pieces
  %zeros = call i64 @llvm.ctlz.i64(i64 %each.piece, i1 false)
  %possible = sub i64 64, %zeros
  %few = call i64 @llvm.umin.i64(i64 %possible, i64 $rounds)
  %single = icmp eq i64 %workers, 1
  %rounds = select i1 %single, i64 1, i64 %few
  %chunks = mul i64 %rounds, %pieces
  %slot = call ptr @slot_of(ptr %queue, i64 %packet)
  %unfinished.at = getelementptr i8, ptr %slot, i64 $slot_unfinished
  store atomic i64 %chunks, ptr %unfinished.at monotonic, align 8
  %chunks.at = getelementptr i8, ptr %slot, i64 $slot_chunks
  store i64 %chunks, ptr %chunks.at
  %pieces.at = getelementptr i8, ptr %slot, i64 $slot_pieces
  store i64 %pieces, ptr %pieces.at
  %total.at = getelementptr i8, ptr %slot, i64 $slot_workgroups
  store i64 %total, ptr %total.at
  %start.at = getelementptr i8, ptr %slot, i64 $slot_start
  %signal.at = getelementptr i8, ptr %at, i64 $dispatch_completion_signal
  %signal = load ptr, ptr %signal.at
  %timed = icmp ne ptr %signal, null
  br i1 %timed, label %stamp, label %done

stamp:
  %time = call i64 @now()
  store i64 %time, ptr %start.at
  br label %done

done:
  ret i64 %chunks
}

; Moves the read index over the packets that have completed, and wakes a submitter that waits for it.
define internal void @retire(ptr %queue) nounwind {
entry:
  %read.at = getelementptr i8, ptr %queue, i64 $queue_read_index
  %next.at = getelementptr i8, ptr %queue, i64 $queue_next
  %read = load i64, ptr %read.at
  %next = load i64, ptr %next.at
  br label %each

each:
  %index = phi i64 [ %read, %entry ], [ %following, %look ]
  %at.end = icmp eq i64 %index, %next
  br i1 %at.end, label %end, label %look

look:
  %at = call ptr @packet_at(ptr %queue, i64 %index)
  %header = load atomic i16, ptr %at acquire, align 2
  %following = add i64 %index, 1
  %free = icmp eq i16 %header, $header_invalid
  br i1 %free, label %each, label %end

end:
  %moved = icmp ne i64 %index, %read
  br i1 %moved, label %store, label %done

store:
  store atomic i64 %index, ptr %read.at release, align 8
  fence seq_cst
  %waiters.at = getelementptr i8, ptr %queue, i64 $queue_space_waiters
  %waiters = load atomic i32, ptr %waiters.at monotonic, align 4
  %nobody = icmp eq i32 %waiters, 0
  br i1 %nobody, label %done, label %compare

compare:
  %wanted.at = getelementptr i8, ptr %queue, i64 $queue_space_wanted
  %wanted = load atomic i64, ptr %wanted.at monotonic, align 8
  %ahead = sub i64 %index, %wanted
  %reached = icmp sge i64 %ahead, 0
  br i1 %reached, label %wake, label %done

wake:
  call void @wake(ptr %read.at, i32 %waiters)
  br label %done

done:
  ret void
}

declare i64 @llvm.ctlz.i64(i64, i1)
