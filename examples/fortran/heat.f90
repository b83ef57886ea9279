! The heat equation on a plane, cut into blocks among the processes of MPI; every step is a commit.
!
!   F=$(pkg-config --variable=fortran_dir bedform)
!   mpicc -c $F/bedform_mpi_fortran.c $(pkg-config --cflags bedform)
!   mpifort -I$F $F/bedform_interfaces.f90 $F/bedform.f90 $F/bedform_mpi.f90 heat.f90 \
!     bedform_mpi_fortran.o $(pkg-config --libs bedform) \
!     -Wl,-rpath,$(pkg-config --variable=libdir bedform) -o heat
!   mpiexec -n 4 ./heat heat.zarr
!
! Each process writes its block of a step into the array t(x, y, step), and a commit makes the step visible
! as a whole. In the end process 0 reads the last plane and compares it with its own computation.
program heat
  use, intrinsic :: iso_fortran_env, only: real64, error_unit
  use mpi
  use bedform
  use bedform_mpi
  implicit none

  integer, parameter :: width = 64, height = 48, steps = 6
  type(bf_store) :: store
  type(bf_comm) :: comm
  type(bf_session) :: session
  real(real64), allocatable :: block(:, :)
  character(1000) :: path
  integer :: rank, processes, dims(2), at(2), grid, left, right, top, bottom, step, error

  call MPI_Init(error)
  call get_command_argument(1, path)
  if (path == "") then
    write (error_unit, "(a)") "usage: heat PATH"
    call MPI_Abort(MPI_COMM_WORLD, 2, error)
    stop 2 ! MPI_Abort of some MPIs returns
  end if
  call MPI_Comm_size(MPI_COMM_WORLD, processes, error)
  dims = 0
  call MPI_Dims_create(processes, 2, dims, error)
  call MPI_Cart_create(MPI_COMM_WORLD, 2, dims, [.false., .false.], .false., grid, error)
  call MPI_Comm_rank(grid, rank, error)
  call MPI_Cart_coords(grid, rank, 2, at, error)

  ! One process creates the store, then all open it.
  if (rank == 0) then
    call bf_create(path, store, attributes='{"title": "heat"}')
    call bf_create_array(store, "t", "float64", int([width, height, steps], bf_index), dims="x,y,step", &
      options='{"reads": {"x,y": 0.7, "step": 0.3}, "codecs": ["zstd"]}')
    call bf_close(store)
  end if
  call MPI_Barrier(grid, error)
  call bf_open(path, "r+", store)

  ! The block of this process, with a border of one cell.
  left = width*at(1)/dims(1) + 1
  right = width*(at(1) + 1)/dims(1)
  top = height*at(2)/dims(2) + 1
  bottom = height*(at(2) + 1)/dims(2)
  allocate (block(left - 1:right + 1, top - 1:bottom + 1))
  call heat_up(block, left - 2, top - 2)

  call bf_comm_from_mpi(grid, comm)
  call bf_session_begin(store, session, comm)
  do step = 1, steps
    call bf_session_write(session, "t", int([left, top, step], bf_index), block(left:right, top:bottom))
    call bf_session_commit(session)
    call exchange(block)
    call advance(block)
  end do
  call bf_session_end(session)   ! turns the commits into plain Zarr
  call bf_comm_free(comm)
  call bf_close(store)

  if (rank == 0) call verify(path)
  call MPI_Comm_free(grid, error)
  call MPI_Finalize(error)

contains

  ! The values before the first step: a hot square, cold borders. The first cell of the block is (x, y), counted
  ! from 0.
  subroutine heat_up(block, x, y)
    real(real64), intent(out) :: block(:, :)
    integer, intent(in) :: x, y
    integer :: i, j
    block = 0
    do j = 1, size(block, 2)
      do i = 1, size(block, 1)
        if (x + i - 1 > width/4 .and. x + i - 1 < width/2 .and. y + j - 1 > height/4 .and. &
          y + j - 1 < height/2) block(i, j) = 100
      end do
    end do
  end subroutine

  ! Computes one step on the cells inside the border.
  subroutine advance(block)
    real(real64), intent(inout) :: block(:, :)
    integer :: n, m
    n = size(block, 1) - 1
    m = size(block, 2) - 1
    block(2:n, 2:m) = block(2:n, 2:m) + 0.2_real64*(block(:n - 1, 2:m) + block(3:, 2:m) + &
      block(2:n, :m - 1) + block(2:n, 3:) - 4*block(2:n, 2:m))
  end subroutine

  ! Fills the border with the neighbours' cells; outside of the plane it stays 0.
  subroutine exchange(block)
    real(real64), intent(inout) :: block(:, :)
    integer :: n, m, before, after, ignored
    n = size(block, 1)
    m = size(block, 2)
    call MPI_Cart_shift(grid, 0, 1, before, after, ignored)
    call shift(block(2, :), block(n, :), before, after)
    call shift(block(n - 1, :), block(1, :), after, before)
    call MPI_Cart_shift(grid, 1, 1, before, after, ignored)
    call shift(block(:, 2), block(:, m), before, after)
    call shift(block(:, m - 1), block(:, 1), after, before)
  end subroutine

  ! Sends an edge to one neighbour and receives one of the other, if there is one.
  subroutine shift(edge, border, to, from)
    real(real64), intent(in) :: edge(:)
    real(real64), intent(inout) :: border(:)
    integer, intent(in) :: to, from
    real(real64) :: sent(size(edge)), received(size(edge))
    integer :: ignored
    sent = edge
    received = 0
    call MPI_Sendrecv(sent, size(sent), MPI_DOUBLE_PRECISION, to, 0, received, size(received), &
      MPI_DOUBLE_PRECISION, from, 0, grid, MPI_STATUS_IGNORE, ignored)
    border = received
  end subroutine

  ! Opens the store again, reads the last step, and compares it.
  subroutine verify(path)
    character(*), intent(in) :: path
    type(bf_array) :: t
    real(real64) :: found(width, height), expected(0:width + 1, 0:height + 1)
    integer :: step, ignored
    call bf_open(path, "r", store)
    call bf_open_array(store, "t", t)
    call bf_read(t, int([1, 1, steps], bf_index), found)
    call bf_close_array(t)
    call bf_close(store)
    call heat_up(expected, -1, -1)
    do step = 2, steps
      call advance(expected)
    end do
    if (maxval(abs(found - expected(1:width, 1:height))) > 1e-12_real64) then
      write (error_unit, "(a)") "heat: the plane read is not the one computed"
      call MPI_Abort(MPI_COMM_WORLD, 1, ignored)
      stop 1
    end if
    print "(i0, a)", steps, " steps committed; the last plane is right"
  end subroutine

end program heat
