; Copies memory, $copy_block bytes a workgroup: view 0 is read, view 1 written, the constant is the
; size in bytes.

define void @crossinfer_copy(ptr %kernarg, i64 %first, i64 %workgroups, i32 %worker) nounwind {
  %source = load ptr, ptr %kernarg
  %destination.at = getelementptr i8, ptr %kernarg, i64 8
  %destination = load ptr, ptr %destination.at
  %size.at = getelementptr i8, ptr %kernarg, i64 $constants_offset
  %size = load i64, ptr %size.at
  %start = mul i64 %first, $copy_block
  %room = sub i64 %size, %start
  %wanted = mul i64 %workgroups, $copy_block
  %count = call i64 @llvm.umin.i64(i64 %wanted, i64 %room)
  %from = getelementptr i8, ptr %source, i64 %start
  %to = getelementptr i8, ptr %destination, i64 %start
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %count, i1 false)
  ret void
}

declare i64 @llvm.umin.i64(i64, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
