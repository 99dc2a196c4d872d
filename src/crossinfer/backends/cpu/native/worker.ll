; One worker thread: takes chunks of the packet that is being handed out; when none is left, starts
; the next packet; when there is none to start, spins for a while, then sleeps.
;
; The claim is one 64-bit word: the packet's index (its low 32 bits) above, 2^31 plus the number of
; chunks that nobody took yet below. Subtracting 1 takes a chunk and tells in the same instant of
; which packet. Whoever finds no chunk left has taken nothing and must not look at the packet, whose
; slot may hold another one by then. Chunk 0 belongs to the worker that starts the packet.

define void @crossinfer_worker(ptr %queue, i32 %worker) nounwind {
entry:
  %idle.since = alloca i64
  store i64 0, ptr %idle.since
  %claim.at = getelementptr i8, ptr %queue, i64 $queue_claim
  %stop.at = getelementptr i8, ptr %queue, i64 $queue_stop
  %spin.at = getelementptr i8, ptr %queue, i64 $queue_spin_ns
  %spin.ns = load i64, ptr %spin.at
  %busy.spin.at = getelementptr i8, ptr %queue, i64 $queue_busy_spin_ns
  %busy.spin.ns = load i64, ptr %busy.spin.at
  %in.flight.at = getelementptr i8, ptr %queue, i64 $queue_in_flight
  br label %again

working:
  store i64 0, ptr %idle.since
  br label %again

again:
  %stop = load atomic i32, ptr %stop.at acquire, align 4
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %leave, label %look

look:
  %seen = load atomic i64, ptr %claim.at monotonic, align 8
  %open = call i1 @is_open(i64 %seen)
  br i1 %open, label %take, label %start

take:
  %taken = atomicrmw sub ptr %claim.at, i64 1 acq_rel, align 8
  %got = call i1 @is_open(i64 %taken)
  br i1 %got, label %run.taken, label %again

run.taken:
  %taken.packet = lshr i64 %taken, 32
  %left = and i64 %taken, $claim_count_mask
  call void @run_from_end(ptr %queue, i64 %taken.packet, i64 %left, i32 %worker)
  br label %working

start:
  %worth = call i1 @may_start(ptr %queue)
  br i1 %worth, label %try.start, label %idle

try.start:
  %started = call i64 @start_next(ptr %queue)
  switch i64 %started, label %run.started [
    i64 $code_nothing, label %idle
    i64 $code_blocked, label %idle
    i64 $code_busy, label %idle
    i64 $code_progress, label %working
  ]

run.started:
  %packet = phi i64 [ %started, %try.start ], [ %woken, %sleep ]
  call void @run(ptr %queue, i64 %packet, i64 0, i32 %worker)
  br label %working

idle:
  %time = call i64 @now()
  %known.since = load i64, ptr %idle.since
  %is.first = icmp eq i64 %known.since, 0
  %since = select i1 %is.first, i64 %time, i64 %known.since
  store i64 %since, ptr %idle.since
  %idle.for = sub i64 %time, %since
  %in.flight = load atomic i64, ptr %in.flight.at monotonic, align 8
  %drained = icmp eq i64 %in.flight, 0
  %limit = select i1 %drained, i64 %spin.ns, i64 %busy.spin.ns
  %tired = icmp ugt i64 %idle.for, %limit
  br i1 %tired, label %sleep, label %spin

spin:
  call void @pause()
  call void @pause()
  call void @pause()
  call void @pause()
  br label %again

sleep:
  %woken = call i64 @sleep(ptr %queue)
  store i64 0, ptr %idle.since
  %runs = icmp sge i64 %woken, 0
  br i1 %runs, label %run.started, label %again

leave:
  ret void
}

; Whether a claim has chunks left.
define internal i1 @is_open(i64 %claim) alwaysinline nounwind {
  %count = trunc i64 %claim to i32
  %open = icmp ugt i32 %count, $claim_bias
  ret i1 %open
}

; Sleeps until there may be something to do. Gives the index of a packet if it found one to start
; instead, or a negative code.
define internal i64 @sleep(ptr %queue) noinline nounwind {
entry:
  %epoch.at = getelementptr i8, ptr %queue, i64 $queue_epoch
  %sleepers.at = getelementptr i8, ptr %queue, i64 $queue_sleepers
  %stop.at = getelementptr i8, ptr %queue, i64 $queue_stop
  %epoch = load atomic i32, ptr %epoch.at acquire, align 4
  %before = atomicrmw add ptr %sleepers.at, i32 1 seq_cst, align 4
  ; Whoever makes work from here on sees a sleeper; what was made before is found by looking again.
  fence seq_cst
  %stop = load atomic i32, ptr %stop.at acquire, align 4
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %awake, label %look

look:
  %found = call i64 @start_next(ptr %queue)
  switch i64 %found, label %awake [
    i64 $code_nothing, label %wait
    i64 $code_blocked, label %wait
    i64 $code_busy, label %give.way
  ]

wait:
  ; Signals of a barrier-AND packet may be counted down by agents that wake nobody here.
  %polls = icmp eq i64 %found, $code_blocked
  %timeout = select i1 %polls, i64 $poll_ns, i64 -1
  call void @wait_on(ptr %epoch.at, i32 %epoch, i64 %timeout)
  br label %awake

give.way:
  call void @give_way()
  br label %awake

awake:
  %result = phi i64 [ $code_nothing, %entry ], [ %found, %look ],
                    [ $code_nothing, %wait ], [ $code_nothing, %give.way ]
  %after = atomicrmw sub ptr %sleepers.at, i32 1 seq_cst, align 4
  ret i64 %result
}

; Wakes up to %count sleeping workers; called after work for them was made.
define internal void @wake_workers(ptr %queue, i64 %count) nounwind {
entry:
  fence seq_cst
  %sleepers.at = getelementptr i8, ptr %queue, i64 $queue_sleepers
  %sleepers = load atomic i32, ptr %sleepers.at monotonic, align 4
  %all.awake = icmp eq i32 %sleepers, 0
  br i1 %all.awake, label %done, label %wake

wake:
  %epoch.at = getelementptr i8, ptr %queue, i64 $queue_epoch
  %epoch = atomicrmw add ptr %epoch.at, i32 1 seq_cst, align 4
  %number = trunc i64 %count to i32
  call void @wake(ptr %epoch.at, i32 %number)
  br label %done

done:
  ret void
}
