; The kernel of the queue's stress test; `stress_program` says what it computes. Views: 0 is read, 1
; changed. Constants: factor, term, delay, groups, first group, sleep in ns. A workgroup is
; $group_words words. The worker that has workgroup 0 sleeps, so that others overtake it even where
; they share its core.

define void @stress_mix(ptr %kernarg, i64 %begin, i64 %count, i32 %worker) nounwind {
entry:
  %word = alloca i32
  store i32 0, ptr %word
  %read = load ptr, ptr %kernarg
  %changed.at = getelementptr i64, ptr %kernarg, i64 1
  %changed = load ptr, ptr %changed.at
  %constants = getelementptr i8, ptr %kernarg, i64 $constants_offset
  %factor = load i64, ptr %constants
  %term.at = getelementptr i64, ptr %constants, i64 1
  %term = load i64, ptr %term.at
  %delay.at = getelementptr i64, ptr %constants, i64 2
  %delay = load i64, ptr %delay.at
  %groups.at = getelementptr i64, ptr %constants, i64 3
  %groups = load i64, ptr %groups.at
  %rotation.at = getelementptr i64, ptr %constants, i64 4
  %rotation = load i64, ptr %rotation.at
  %sleep.at = getelementptr i64, ptr %constants, i64 5
  %sleep = load i64, ptr %sleep.at
  %words = mul i64 %groups, $group_words
  %end = add i64 %begin, %count
  %is.first = icmp eq i64 %begin, 0
  %is.sleepy = icmp ne i64 %sleep, 0
  %sleeps = and i1 %is.first, %is.sleepy
  br i1 %sleeps, label %nap, label %chain

nap:
  call void @wait_on(ptr %word, i32 0, i64 %sleep)
  br label %chain

chain:
  %step = phi i64 [ 0, %entry ], [ 0, %nap ], [ %next.step, %link ]
  %value = phi i64 [ %term, %entry ], [ %term, %nap ], [ %next.value, %link ]
  %chain.done = icmp eq i64 %step, %delay
  br i1 %chain.done, label %group, label %link

link:
  %scaled.value = mul i64 %value, $chain_factor
  %next.value = add i64 %scaled.value, $chain_term
  %next.step = add i64 %step, 1
  br label %chain

group:
  %g = phi i64 [ %begin, %chain ], [ %next.g, %group.end ]
  %groups.done = icmp eq i64 %g, %end
  br i1 %groups.done, label %leave, label %group.start

group.start:
  %rotated = add i64 %g, %rotation
  %place = urem i64 %rotated, %groups
  %base = mul i64 %place, $group_words
  br label %each

each:
  %i = phi i64 [ 0, %group.start ], [ %next.i, %each ]
  %at = add i64 %base, %i
  %from.end = sub i64 %words, %at
  %mirrored = sub i64 %from.end, 1
  %source.at = getelementptr i64, ptr %read, i64 %mirrored
  %source = load i64, ptr %source.at
  %target.at = getelementptr i64, ptr %changed, i64 %at
  %target = load i64, ptr %target.at
  %product = mul i64 %source, %factor
  %tripled = mul i64 %target, 3
  %sum = add i64 %product, %tripled
  %total = add i64 %sum, %value
  store i64 %total, ptr %target.at
  %next.i = add i64 %i, 1
  %more = icmp ult i64 %next.i, $group_words
  br i1 %more, label %each, label %group.end

group.end:
  %next.g = add i64 %g, 1
  br label %group

leave:
  ret void
}
